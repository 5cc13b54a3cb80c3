"""Tokens are the tokenizer's, and attention maps are the model's own weights."""

import copy

import pytest
import torch

from tercet.inspection.attention_maps import by_definition
from tercet.play import inspection
from tercet.play.sessions import abilities_of

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


@pytest.mark.parametrize("name", ["encoder", "decoder", "spans", "classifier"])
@pytest.mark.parametrize("head", [0, 3])
def test_each_row_of_an_attention_map_sums_to_1(name, head, load):
    (heatmap,) = abilities_of(load(name))["attention"].answer([TEXT], {"layer": 2, "head": head})
    assert [sum(row) for row in heatmap.weights] == pytest.approx([1] * len(heatmap.rows), abs=1e-5)
    assert len(heatmap.columns) == len(heatmap.weights[0])


def test_a_map_is_what_the_model_returns_and_head_0_is_the_mean(load):
    model = load("encoder")
    attention = abilities_of(model)["attention"]
    kernel = model.config._attn_implementation
    maps = [
        torch.tensor(attention.answer([TEXT], {"layer": 1, "head": head})[0].weights) for head in range(5)
    ]
    assert model.config._attn_implementation == kernel
    with torch.no_grad(), by_definition(model.model):
        expected = model.model(**model.inputs(TEXT), output_attentions=True).attentions[0][0]
    assert torch.allclose(torch.stack(maps[1:]), expected, atol=1e-6)
    assert torch.allclose(maps[0], expected.mean(dim=0), atol=1e-6)


def test_the_maps_of_a_decoder_beside_an_encoder_are_of_what_it_writes(load):
    model = load("spans")
    attention = abilities_of(model)["attention"]
    inputs = model.inputs(TEXT)
    written = model.model.generate(**inputs, num_beams=1, do_sample=False, max_new_tokens=63)
    with torch.no_grad(), by_definition(model.model):
        outputs = model.model(**inputs, decoder_input_ids=written, output_attentions=True)
    for number, recorded in ((2, outputs.decoder_attentions), (3, outputs.cross_attentions)):
        (heatmap,) = attention.answer([TEXT], {"layer": 2, "head": 3, "map": number})
        assert torch.allclose(torch.tensor(heatmap.weights), recorded[1][0, 2], atol=1e-6)
        assert (len(heatmap.rows), len(heatmap.columns)) == recorded[1].shape[-2:]
    assert heatmap.title == "Layer 2 of the decoder's attention to the encoder, head 3"


def test_models_of_one_stack_have_one_map(load):
    with pytest.raises(ValueError, match="map is 2: choose a number from 1 to 1"):
        abilities_of(load("encoder"))["attention"].answer([TEXT], {"map": 2})


def test_a_decoder_draws_nothing_from_later_tokens(load):
    (heatmap,) = abilities_of(load("decoder"))["attention"].answer([TEXT], {})
    assert not torch.tensor(heatmap.weights).triu(1).any()


def test_a_decoder_reads_what_opens_a_text_as_where_it_continues(load):
    model = load("decoder")
    (heatmap,) = abilities_of(model)["attention"].answer([TEXT], {"layer": 2, "head": 1})
    ids = abilities_of(model)["continue"].encode(TEXT)
    with torch.no_grad(), by_definition(model.model):
        expected = model.model(ids, output_attentions=True).attentions[1][0, 0]
    assert torch.allclose(torch.tensor(heatmap.weights), expected, atol=1e-6)
    assert heatmap.rows[0] == model.tokenizer.bos_token


def test_what_opens_a_text_counts_in_its_length(load, monkeypatch):
    model = load("decoder")
    monkeypatch.setattr(model, "max_length", len(model.tokenizer(TEXT)["input_ids"]))
    with pytest.raises(ValueError, match="shorten the text"):
        abilities_of(model)["attention"].answer([TEXT], {})


def test_a_layer_that_the_model_has_not_is_refused(load):
    with pytest.raises(ValueError, match="layer is 3: choose a number from 1 to 2"):
        abilities_of(load("encoder"))["attention"].answer([TEXT], {"layer": 3})


def test_a_text_that_no_map_shows_is_refused(load, monkeypatch):
    monkeypatch.setattr(inspection, "MOST_TOKENS", 8)
    with pytest.raises(ValueError, match="has 9 tokens, and a map shows at most 8: shorten the text"):
        abilities_of(load("encoder"))["attention"].answer([TEXT], {})
