"""Heads that know the noun are told from heads that follow distance, and from the best of many that guess."""

import pytest
import torch

from tercet.inspection import coreference
from tercet.inspection.coreference import PAIRS, Pair, coreference_scores, tokens_at

from .conftest import build


def planted(monkeypatch, tokenizer):
    """Replace maps by those of three heads: one that knows, one of distance, one that looks at itself."""
    answers = {}
    for pair in PAIRS:
        for ending, noun in ((pair.of_first, pair.first), (pair.of_second, pair.second)):
            answers[tuple(tokenizer(f"{pair.beginning} {ending}")["input_ids"])] = noun

    def maps(_, inputs):
        (ids,) = inputs["input_ids"].tolist()
        size, words = len(ids), tokenizer.convert_ids_to_tokens(ids)
        weights = torch.zeros(1, 3, size, size)
        weights[0, 0, :, words.index(answers[tuple(ids)])] = 1
        weights[0, 1] = torch.softmax(
            -(torch.arange(size)[:, None] - torch.arange(size)).abs().float(), dim=-1
        )
        weights[0, 2] = torch.eye(size)
        return {"self": [weights]}

    monkeypatch.setattr(coreference, "attention_maps", maps)


def test_a_head_that_knows_the_noun_is_told_from_distance(monkeypatch, tokenizer):
    planted(monkeypatch, tokenizer)
    scores = coreference_scores(build("bert"), tokenizer)
    assert scores.accuracy.tolist() == [[1.0, 0.5, 0.5]]
    assert scores.consistency.tolist() == [[1.0, 0.0, 0.0]]
    assert (scores.nearest, scores.first, scores.reader) == (0.5, 0.5, "pronoun")
    assert scores.held_out == 1.0
    assert 0.6 < scores.best_by_chance < 0.7


@pytest.mark.parametrize(("name", "reader"), [("bert", "pronoun"), ("decoder", "end"), ("t5", "pronoun")])
def test_random_weights_do_not_exceed_chance(name, reader, tokenizer):
    scores = coreference_scores(build(name, vocab_size=len(tokenizer)), tokenizer)
    assert scores.reader == reader
    assert scores.accuracy.shape == (2, 4)
    assert scores.accuracy.max() <= scores.best_by_chance + 0.05
    assert scores.held_out < scores.best_by_chance


def test_a_decoder_cannot_know_at_the_pronoun_what_follows(tokenizer):
    twins = PAIRS[:20]
    scores = coreference_scores(
        build("decoder", vocab_size=len(tokenizer)), tokenizer, twins, reader="pronoun"
    )
    assert (scores.accuracy == 0.5).all()
    assert (scores.consistency == 0).all()


def test_pairs_are_well_formed(tokenizer):
    for pair in PAIRS:
        assert pair.beginning.index(f" {pair.first} ") < pair.beginning.index(f" {pair.second} ")
        assert pair.of_first != pair.of_second
    assert len({pair.beginning for pair in PAIRS}) == len(PAIRS) == 28
    assert all(pair.of_first.split()[0] == pair.of_second.split()[0] for pair in PAIRS[:20])
    assert all(pair.of_first.split()[0] != pair.of_second.split()[0] for pair in PAIRS[20:])


def test_places_are_found_and_words_without_tokens_refused(tokenizer):
    ids, (noun,) = tokens_at(tokenizer, "The animal did", [(4, 6)])
    assert (len(ids), noun) == (3, [1])
    with pytest.raises(ValueError, match="has no token: pass pairs in the model's language"):
        tokens_at(tokenizer, "The  animal", [(3, 1)])
    assert Pair("a", "b", "c", "d", "e").first == "b"
