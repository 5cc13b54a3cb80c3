"""Tokens are the tokenizer's, and their probabilities the model's."""

import copy

import pytest
import torch

from tercet.tools.play.sessions import abilities_of

TEXT = "The cat sat on the roof."


@pytest.mark.parametrize("name", ["encoder", "decoder", "spans", "classifier"])
def test_tokens_are_those_that_the_model_reads(name, load):
    model = load(name)
    tokens, _ = abilities_of(model)["tokens"].answer([TEXT], {})
    assert [token.token_id for token in tokens.tokens] == model.tokenizer(TEXT)["input_ids"]


def test_a_decoder_says_how_probable_each_token_was(load):
    model = load("decoder")
    tokens, _ = abilities_of(model)["tokens"].answer([TEXT], {})
    ids = model.tokenizer(model.tokenizer.bos_token + TEXT, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        table = model.model(ids).logits[0].softmax(dim=-1)
    expected = [table[place - 1, ids[0, place]].item() for place in range(1, ids.shape[1])]
    assert [token.probability for token in tokens.tokens] == pytest.approx(expected, rel=1e-4)


def test_what_opens_no_text_gives_the_first_token_no_probability(load, monkeypatch):
    model = load("decoder")
    monkeypatch.setattr(model, "tokenizer", copy.deepcopy(model.tokenizer))
    model.tokenizer.bos_token = None
    for text, count in ((TEXT, len(model.tokenizer(TEXT)["input_ids"])), ("T", 1)):
        tokens, _ = abilities_of(model)["tokens"].answer([text], {})
        known = [token.probability is not None for token in tokens.tokens]
        assert known == [False] + [True] * (count - 1)


def test_other_models_give_tokens_no_probability(load):
    tokens, _ = abilities_of(load("encoder"))["tokens"].answer([TEXT], {})
    assert {token.probability for token in tokens.tokens} == {None}
