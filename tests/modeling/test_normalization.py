"""Norms and the residual stream keep the type of the weights under autocast."""

import pytest
import torch

from tercet import TercetEncoderConfig, TercetEncoderForMaskedLM
from tercet.modeling.layers.position_wise import HeadRMSNorm, RMSNorm


@pytest.mark.parametrize("norm_type", ["rms_norm", "layer_norm"])
def test_the_stream_of_projected_embeddings_has_the_type_of_the_weights(norm_type):
    config = TercetEncoderConfig(
        vocab_size=50, hidden_size=32, embedding_size=16, head_transform=True, norm_type=norm_type,
        num_hidden_layers=2, num_attention_heads=2,
    )  # fmt: skip
    model = TercetEncoderForMaskedLM(config)
    types = []
    for block in model.model.layers:
        block.register_forward_hook(lambda _, inputs, output: types.extend((inputs[0].dtype, output.dtype)))
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.tensor([[5, 6, 7]]))
    assert types == [torch.float32] * 4


def test_a_norm_computes_in_the_type_of_its_weights():
    x = torch.randn(3, 8).bfloat16()
    norm, head_norm = RMSNorm(8, eps=1e-6), HeadRMSNorm(8, eps=1e-6)
    expected = torch.nn.functional.rms_norm(x.float(), [8], eps=1e-6)
    torch.testing.assert_close(norm(x), expected, rtol=0, atol=0)
    torch.testing.assert_close(head_norm(x), expected.bfloat16(), rtol=0, atol=0)
