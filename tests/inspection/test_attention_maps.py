"""Maps are the definition's weights, distance is told from content, and a planted induction head is found."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tercet.inspection.attention_maps import attention_maps, distance_map, distance_share, induction_scores
from tercet.inspection.inspected_model import find_attention, untrained

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
    uniform = allowed / allowed.sum(dim=-1, keepdim=True)
    maps = torch.stack([of_distance, random, uniform])[None]
    shares = distance_share(maps)
    assert shares[0] > 0.8
    assert shares[1] < 0.3
    predicted = distance_map(maps)
    torch.testing.assert_close(predicted.sum(dim=-1), torch.ones(1, 3, size))
    assert (predicted.triu(1) == 0).all()
    assert (predicted[0, 0] - of_distance).abs().max() < 0.2 < (predicted[0, 1] - random).abs().max()


def induction_model(length: int, words: int = 48) -> GPT2LMHeadModel:
    """Write a GPT-2 by hand whose head 1.0 is an induction head, and whose head 0.1 looks back so far.

    States have a place for the token, for the position, and for the token before, each one-hot. Head 0.0
    attends to the token before and copies it to its place; head 1.0 attends where the token before is the
    present one.
    """
    config = GPT2Config(
        vocab_size=words, n_embd=3 * words, n_head=3, n_layer=2, n_positions=words, bos_token_id=0
    )
    model = GPT2LMHeadModel(config).eval()
    token, place, before = (torch.arange(words) + part * words for part in range(3))
    shift = torch.eye(words).roll(1, dims=1)
    with torch.no_grad():
        for block in model.transformer.h:
            for weights in (block.attn.c_attn, block.attn.c_proj, block.mlp.c_proj):
                weights.weight.zero_()
        model.transformer.wte.weight.zero_()[:, token] = 3 * torch.eye(words)
        model.transformer.wpe.weight.zero_()[:, place] = 3 * torch.eye(words)
        query, key, value = (torch.arange(words) + part * 3 * words for part in range(3))  # of head 0
        first, second = (block.attn for block in model.transformer.h)
        first.c_attn.weight[place[:, None], query] = 3 * torch.eye(words)
        first.c_attn.weight[place[:, None], key] = 3 * shift
        first.c_attn.weight[token[:, None], value] = torch.eye(words)
        first.c_proj.weight[token[:, None], before] = torch.eye(words)
        first.c_attn.weight[place[:, None], query + words] = 3 * torch.eye(words)
        first.c_attn.weight[place[:, None], key + words] = 3 * shift.matrix_power(length - 1)
        second.c_attn.weight[token[:, None], query] = 3 * torch.eye(words)
        second.c_attn.weight[before[:, None], key] = 3 * torch.eye(words)
    return model


def test_a_planted_induction_head_is_found_and_a_head_of_distance_is_not_taken_for_one():
    model = induction_model(length=12)
    found = induction_scores(model, length=12, num_sequences=4)
    gain = found.scores - found.by_distance
    assert found.scores.shape == (2, 3)
    assert found.scores[1, 0] > 0.8
    assert gain[1, 0] > 0.7
    assert found.scores[0, 1] > 0.9  # it looks there because of the distance
    others = gain.clone()
    others[1, 0] = 0
    assert others.abs().max() < 0.05
    assert found.uniform == pytest.approx(sum(1 / (13 + i + 1) for i in range(12)) / 12, rel=1e-4)


def test_random_weights_have_no_induction_head():
    for model in (untrained(induction_model(length=12)), build("bert"), build("seq2seq")):
        found = induction_scores(model, length=12)
        assert (found.scores - found.by_distance).max() < 0.3
        assert found.scores.shape[0] == 2
