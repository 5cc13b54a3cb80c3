"""Patched states carry what follows from them, and the lens reads the last layer as the model does."""

import pytest
import torch

from tercet.inspection.activation_patching import (
    lens_divergence,
    logit_lens,
    patch,
    patching_effects,
    record_states,
)
from tercet.inspection.inspected_model import find_blocks

from .conftest import MODELS, build, packed, padded

PACKED = ("encoder", "decoder")


def batches(name, texts, layout):
    """Lay out two lists of texts of the same lengths."""
    return [layout(each, name) for each in (texts, [text.roll(1) + 1 for text in texts[:2]] + texts[2:])]


@pytest.mark.parametrize(
    ("name", "layout"), [*((name, padded) for name in MODELS), *((name, packed) for name in PACKED)]
)
def test_the_source_is_what_its_last_states_give(name, layout, texts):
    model = build(name)
    inputs, source = batches(name, [text % 30 + 3 for text in texts], layout)
    blocks = find_blocks(model)
    states = record_states(model, source)
    with torch.no_grad():
        own, other = model(**inputs).logits, model(**source).logits
        with patch(blocks[-1], states[-1]):
            torch.testing.assert_close(model(**inputs).logits, other)
        with patch(blocks[0], record_states(model, inputs)[1]):
            torch.testing.assert_close(model(**inputs).logits, own)
        with patch(blocks[0], states[1], []):
            assert torch.equal(model(**inputs).logits, own)
        assert torch.equal(model(**inputs).logits, own)
    assert (own - other).abs().max() > 0.01


@pytest.mark.parametrize("name", MODELS)
def test_the_lens_reads_the_last_layer_as_the_model_does(name, texts):
    model, batch = build(name), padded(texts, name)
    logits = logit_lens(model, batch)
    with torch.no_grad():
        expected = model(**batch).logits
    assert len(logits) == 3
    torch.testing.assert_close(logits[-1], expected)
    apart = lens_divergence(logits, batch)
    assert apart[-1] == pytest.approx(0, abs=1e-5)
    assert min(apart[:-1]) > 0.01


def test_the_lens_is_norm_and_head_of_states(texts):
    model, batch = build("llama"), padded(texts, "llama")
    states = record_states(model, batch)
    with torch.no_grad():
        for layer, logits in zip(states, logit_lens(model, batch), strict=True):
            torch.testing.assert_close(logits, model.lm_head(model.model.norm(layer)))
        hidden = model(**batch, output_hidden_states=True).hidden_states
    torch.testing.assert_close(states[:-1], list(hidden[:-1]))


@pytest.mark.parametrize("name", PACKED)
def test_packed_states_are_those_of_rows(name, texts):
    model, rows = build(name), padded(texts, name)
    stream = record_states(model, packed(texts, name))
    for one, other in zip(stream, record_states(model, rows), strict=True):
        torch.testing.assert_close(one[0], other[rows["attention_mask"].bool()], rtol=1e-4, atol=1e-4)


def test_effects_follow_the_tokens_that_differ():
    model = build("decoder")
    ids = torch.tensor([[5, 9, 13, 7]])
    changed = ids.clone()
    changed[0, 1] = 30
    effects = patching_effects(
        model, {"input_ids": ids}, {"input_ids": changed}, lambda out: out.logits[0, -1, 3]
    )
    assert effects[1].tolist() == pytest.approx([0, 0, 0, 1], abs=1e-5)
    assert effects[0, 0] == pytest.approx(0, abs=1e-5)  # before the token that differs
    assert effects[0, 1:].abs().min() > 1e-4
    with pytest.raises(ValueError, match="of both texts: choose one that tells them apart"):
        patching_effects(model, {"input_ids": ids}, {"input_ids": changed}, lambda out: out.logits[0, 0, 3])


def test_states_and_positions_have_to_fit(texts):
    model, batch = build("bert"), padded(texts, "bert")
    block, states = find_blocks(model)[0], record_states(model, batch)[1]
    with (
        pytest.raises(ValueError, match="patch from a text with as many tokens"),
        patch(block, states[:, :-1]),
    ):
        model(**batch)
    with (
        pytest.raises(ValueError, match=r"positions \[9\] are to be patched, but there are 9"),
        patch(block, states, [9]),
    ):
        model(**batch)


def test_a_model_without_head_has_no_lens(texts):
    with pytest.raises(ValueError, match="BertModel gives no logits, which the lens reads"):
        logit_lens(build("bert").bert, padded(texts, "bert"))


def test_blocks_that_compute_twice_are_refused(texts):
    model = build("bert")
    model.bert.encoder.layer[1] = model.bert.encoder.layer[0]
    with pytest.raises(ValueError, match="computed 2, 2 times, and once each is needed"):
        record_states(model, padded(texts, "bert"))
