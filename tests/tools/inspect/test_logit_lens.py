"""The lens reads the last layer as the model does, and each layer by the norm and head behind it."""

import pytest
import torch

from tercet.tools.inspect.logit_lens import lens_divergence, logit_lens, record_states

from .conftest import MODELS, build, packed, padded

PACKED = ("encoder", "decoder")


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


def test_a_model_without_head_has_no_lens(texts):
    with pytest.raises(ValueError, match="BertModel gives no logits, which the lens reads"):
        logit_lens(build("bert").bert, padded(texts, "bert"))


def test_blocks_that_compute_twice_are_refused(texts):
    model = build("bert")
    model.bert.encoder.layer[1] = model.bert.encoder.layer[0]
    with pytest.raises(ValueError, match="computed 2, 2 times, and once each is needed"):
        record_states(model, padded(texts, "bert"))
