"""Maps are the definition's weights, and distance is told from content."""

import pytest
import torch

from tercet.tools.inspect.attention_maps import attention_maps, distance_map
from tercet.tools.inspect.inspected_model import find_attention

from .conftest import MODELS, build, packed, padded

NAMES = {
    "self": "attentions",
    "encoder": "encoder_attentions",
    "decoder": "decoder_attentions",
    "cross": "cross_attentions",
}


@pytest.mark.parametrize("name", MODELS)
def test_maps_are_those_of_the_definition_and_sum_to_one(name, texts):
    model, batch = build(name), padded(texts, name)
    maps = attention_maps(model, batch)
    assert model.config._attn_implementation == "sdpa"
    with torch.no_grad():
        expected = build(name, "eager")(**batch, output_attentions=True)
    kinds = [layer.kind for layer in find_attention(model)]
    assert {kind: len(layers) for kind, layers in maps.items()} == {kind: kinds.count(kind) for kind in kinds}
    for kind, layers in maps.items():
        for weights, eager in zip(layers, expected[NAMES[kind]], strict=True):
            torch.testing.assert_close(weights, eager)
            real = batch["attention_mask" if kind in ("self", "encoder") else "decoder_attention_mask"].bool()
            rows = weights.transpose(1, 2)[real]
            torch.testing.assert_close(rows.sum(dim=-1), torch.ones(rows.shape[:-1]))


def test_packed_maps_are_blocks_of_rows(texts):
    model = build("decoder")
    stream = attention_maps(model, packed(texts, "decoder"))["self"][1][0]
    rows = attention_maps(model, padded(texts, "decoder"))["self"][1]
    start = 0
    for row, text in enumerate(texts):
        end = start + len(text)
        torch.testing.assert_close(stream[:, start:end, start:end], rows[row, :, : len(text), : len(text)])
        assert not stream[:, start:end, :start].any()
        start = end


def test_distance_explains_maps_of_distance_and_not_random_ones():
    generator = torch.Generator().manual_seed(0)
    size, allowed = 20, torch.ones(20, 20).tril()
    distance = (torch.arange(size)[:, None] - torch.arange(size)).abs()
    of_distance = torch.softmax(-0.5 * distance - 1e9 * (1 - allowed), dim=-1)
    random = torch.softmax(3 * torch.randn(size, size, generator=generator) - 1e9 * (1 - allowed), dim=-1)
    predicted = distance_map(torch.stack([of_distance, random])[None])
    torch.testing.assert_close(predicted.sum(dim=-1), torch.ones(1, 2, size))
    assert (predicted.triu(1) == 0).all()
    assert (predicted[0, 0] - of_distance).abs().max() < 0.2 < (predicted[0, 1] - random).abs().max()
