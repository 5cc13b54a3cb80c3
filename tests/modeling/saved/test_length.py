"""The last positions that tokens may have are those that stock models give them."""

import pytest
import torch
from transformers import AutoConfig, AutoModel, CodeGenConfig

from tercet.modeling.saved.length import ROBERTA_LIKE, positions_of_pads

SIZES = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}


@pytest.mark.parametrize("kind", ["bert", "electra", *ROBERTA_LIKE])
def test_a_model_reads_as_many_tokens_as_it_has_positions_for(kind):
    config = AutoConfig.for_model(
        kind, **SIZES, num_attention_heads=2, max_position_embeddings=24, pad_token_id=1, type_vocab_size=1
    )
    model = AutoModel.from_config(config).eval()
    if kind == "xmod":
        model.set_default_language(config.languages[0])
    length = config.max_position_embeddings - positions_of_pads(config)
    assert length == 24 - 2 * (kind in ROBERTA_LIKE)
    with torch.no_grad():
        model(torch.full((1, length), 6))
        with pytest.raises((IndexError, RuntimeError)):
            model(torch.full((1, length + 1), 6))


def test_a_configuration_may_name_no_pad():
    assert not hasattr(CodeGenConfig(), "pad_token_id")
    assert positions_of_pads(CodeGenConfig()) == 0
