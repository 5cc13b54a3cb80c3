"""Gaps and continuations are what the model's logits say."""

import pytest
import torch
from transformers import GenerationConfig, TemperatureLogitsWarper, TopPLogitsWarper

from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.tools.play.ability import Ability
from tercet.tools.play.sessions import abilities_of

from .conftest import TEXT


@pytest.fixture
def fill(load) -> Ability:
    return abilities_of(load("encoder"))["fill"]


@pytest.fixture
def go_on(load) -> Ability:
    return abilities_of(load("decoder"))["continue"]


def test_a_gap_is_ranked_by_the_softmax_of_the_logits_at_the_mask(fill):
    tokenizer, model = fill.model.tokenizer, fill.model.model
    inputs = tokenizer("The function returns a [MASK] of strings.", return_tensors="pt")
    place = inputs["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    with torch.no_grad():
        expected = model(**inputs).logits[0, place].softmax(dim=-1)
    passage, ranking = fill.answer(["The function returns a ___ of strings."], {"top": 4})
    values, ids = expected.topk(4)
    assert [entry.value for entry in ranking.entries] == pytest.approx(values.tolist(), rel=1e-5)
    assert [entry.text for entry in ranking.entries] == [tokenizer.decode([idx]) for idx in ids.tolist()]
    assert passage.text == f"The function returns a {ranking.entries[0].text} of strings."


def test_each_gap_has_a_ranking_of_its_own(fill):
    passage, *rankings = fill.answer(["The ___ sat on the ____ of the house."], {})
    assert [ranking.title for ranking in rankings] == ["Gap 1", "Gap 2"]
    assert [piece.text for piece in passage.pieces if piece.role == "new"] == [
        ranking.entries[0].text for ranking in rankings
    ]


@pytest.mark.parametrize("text", ["The ___[MASK] sat.", "The [MASK]<mask> sat.", "[MASK][MASK]"])
def test_gaps_next_to_each_other_are_filled_each(fill, text):
    passage, *rankings = fill.answer([text], {})
    best = [ranking.entries[0].text for ranking in rankings]
    assert len(best) == 2
    assert [piece.text for piece in passage.pieces if piece.role == "new"] == best


@pytest.mark.parametrize("gap", ["___", "[MASK]", "<mask>", "__________"])
def test_gaps_are_written_in_any_way(fill, gap):
    assert fill.answer([f"The {gap} sat."], {}) == fill.answer(["The ___ sat."], {})


def generated(ability, text, **how):
    """Generate with transformers alone."""
    tokenizer, model = ability.model.tokenizer, ability.model.model
    ids = tokenizer(tokenizer.bos_token + text, return_tensors="pt")["input_ids"]
    written = model.generate(ids, attention_mask=torch.ones_like(ids), **how)
    return ids, tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True)


def test_a_continuation_at_temperature_0_is_what_generate_writes(go_on):
    ids, expected = generated(go_on, "The function", max_new_tokens=9, do_sample=False)
    passage, ranking = go_on.answer(["The function "], {"temperature": 0, "length": 9, "top": 3})
    assert [piece.text for piece in passage.pieces] == ["The function", expected]
    with torch.no_grad():
        after = go_on.model.model(ids).logits[0, -1].softmax(dim=-1)
    assert [entry.value for entry in ranking.entries] == pytest.approx(
        after.topk(3).values.tolist(), rel=1e-5
    )


@pytest.mark.parametrize("temperature", [0, 2])
def test_nothing_but_what_the_sliders_show_changes_the_probabilities(temperature, go_on, monkeypatch):
    """Neither the 50 tokens that transformers would draw from, nor what the model's own settings say."""
    model, ids = go_on.model.model, go_on.encode("The cat")
    expected = ids
    torch.manual_seed(3)
    for _ in range(30):
        scores = model(input_ids=expected).logits[:, -1].detach()
        if temperature:
            scores = TopPLogitsWarper(0.9)(ids, TemperatureLogitsWarper(2.0)(ids, scores))
        token = scores.softmax(dim=-1).multinomial(1) if temperature else scores.argmax(dim=-1, keepdim=True)
        expected = torch.cat([expected, token], dim=1)
    own = {"repetition_penalty": 3.0, "no_repeat_ngram_size": 1, "suppress_tokens": expected[0, 3:6].tolist()}
    own |= {"min_new_tokens": 9, "bad_words_ids": [expected[0, 6:7].tolist()], "top_k": 2, "min_p": 0.5}
    for settings in ({}, own):
        monkeypatch.setattr(model, "generation_config", GenerationConfig(**settings))
        assert go_on.generate(ids, 30, float(temperature), seed=3) == expected[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "byte_bpe"])
def test_a_continuation_joins_the_text_as_its_tokens_do(kind, go_on, monkeypatch):
    """By itself it would lose its first space (transformers#22710), or show `##`."""
    tokenizer = train_tokenizer(TEXT * 20, kind, 320, template="plain")
    monkeypatch.setattr(go_on.model, "tokenizer", tokenizer)
    ids = tokenizer("The cat sat on the roof of the house.")["input_ids"]
    for place in range(1, len(ids)):
        added = go_on.spell(torch.tensor([ids[:place]]), ids[place:])
        assert tokenizer.decode(ids[:place]) + added == tokenizer.decode(ids)


def test_a_draw_is_repeated_and_another_one_differs(go_on):
    settings = {"temperature": 1, "length": 20}
    first, again, other = (go_on.answer(["The cat"], settings | {"draw": draw})[0].text for draw in (1, 1, 2))
    assert first == again != other


def test_drawing_leaves_the_random_state_of_the_program_alone(go_on):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    go_on.answer(["The cat"], {})
    assert torch.equal(torch.get_rng_state(), before)


def test_a_continuation_ends_where_the_model_has_no_room(go_on):
    text = "The cat sat on the roof of the house and"
    room = go_on.model.max_length - go_on.encode(text).shape[1]
    assert 0 < room < 60
    written = go_on.generate(go_on.encode(text), 400, 1.0, seed=0)
    assert len(written) <= room
