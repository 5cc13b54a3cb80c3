"""What pairs of both kinds have in common: how they are drawn and packed, and that no length tells labels."""

from collections.abc import Callable

import numpy as np
import pytest

from tercet.objectives import next_sentence
from tercet.objectives.next_sentence import NextSentencePairs
from tercet.objectives.sentence_order import SentenceOrderPairs
from tercet.objectives.sentence_pairs import SentencePairSource
from tercet.training.examples import Examples, ExampleSource, gather

from ..pretraining.conftest import make_corpus

SIDES = ("first", "second")
KINDS = {"next-sentence prediction": NextSentencePairs, "sentence-order prediction": SentenceOrderPairs}
both_kinds = pytest.mark.parametrize("kind", KINDS.values())


def of_sentences(least: int, most: int, documents: int, longest: int = 30) -> Callable[..., list[list[int]]]:
    """Draw documents of so many sentences of so many tokens."""
    return lambda rng: [
        rng.integers(1, longest, rng.integers(least, most + 1)).tolist() for _ in range(documents)
    ]


CORPORA = {
    "2 sentences": of_sentences(2, 2, 4000),
    "3 sentences": of_sentences(3, 3, 4000),
    "5 sentences": of_sentences(5, 5, 4000),
    "many sentences": of_sentences(20, 200, 250),
    "mixed": lambda rng: of_sentences(2, 3, 1500)(rng) + of_sentences(10, 60, 250)(rng),
    "very long sentences": of_sentences(2, 9, 700, longest=900),
    "one large document": lambda rng: of_sentences(20000, 20000, 1)(rng) + of_sentences(4, 4, 20)(rng),
    "two documents": lambda rng: of_sentences(8000, 8000, 1)(rng) + of_sentences(5000, 5000, 1, 60)(rng),
}
"""Lengths of sentences, in documents of many kinds."""


def lengths_and_labels(source: SentencePairSource, epochs: range) -> tuple[np.ndarray, np.ndarray]:
    """Return what rules look at (P, 4), the lengths of A and B, their sum and difference; and labels (P,)."""
    pairs = [source.epoch(number) for number in epochs]
    a, b = (np.concatenate([np.diff(getattr(part, name))[:, 0] for part in pairs]) for name in SIDES)
    return np.stack([a, b, a + b, a - b], axis=1), np.concatenate([part.labels for part in pairs])


def best_threshold(values: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Find the value (P,) that separates the labels best, and the share of labels that are then right."""
    order = values.argsort()
    values, signs = values[order], 2 * labels[order] - 1
    below = np.concatenate([[0], signs.cumsum()])[np.flatnonzero(np.diff(values, prepend=-(10**9)))]
    shares = 0.5 + np.abs(signs.sum() - 2 * below) / (2 * len(labels))
    return float(np.unique(values)[shares.argmax()]), float(shares.max())


def rightly_told_by_a_tree(
    learned: tuple[np.ndarray, np.ndarray], held_out: tuple[np.ndarray, np.ndarray], depth: int
) -> float:
    """Learn a decision tree, threshold after threshold, and count how many held-out labels it gets right."""
    (values, labels), (others, true) = learned, held_out
    if depth == 0 or len(labels) < 200:
        return float((true == (2 * labels.sum() > len(labels))).sum())
    rules = [best_threshold(column, labels) for column in values.T]
    column = int(np.argmax([share for _, share in rules]))
    below, other_below = values[:, column] < rules[column][0], others[:, column] < rules[column][0]
    return sum(
        rightly_told_by_a_tree((values[here], labels[here]), (others[there], true[there]), depth - 1)
        for here, there in ((below, other_below), (~below, ~other_below))
    )


def test_the_rules_find_what_lengths_tell():
    """Otherwise the next test says nothing."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 100, size=(2000, 4))
    labels = (values[:, 2] >= 60).astype(int)
    assert best_threshold(values[:, 2], labels) == (60, 1.0)
    middle = (np.abs(values[:, 1] - 50) < 20).astype(int)
    assert best_threshold(values[:, 1], middle)[1] < 0.75
    halves = (values[:1000], middle[:1000]), (values[1000:], middle[1000:])
    assert rightly_told_by_a_tree(*halves, depth=3) > 950


@both_kinds
@pytest.mark.parametrize("name", CORPORA)
def test_no_rule_on_lengths_tells_the_label(pair_tokenizer, name, kind):
    rng = np.random.default_rng(0)
    source = kind(make_corpus(CORPORA[name](rng)), pair_tokenizer, 128, seed=8)
    learned, held_out = (lengths_and_labels(source, epochs) for epochs in (range(4), range(4, 8)))
    assert len(held_out[1]) > 7000
    for column in held_out[0].T:
        assert best_threshold(column, held_out[1])[1] <= 0.53
    assert rightly_told_by_a_tree(learned, held_out, depth=4) <= 0.53 * len(held_out[1])


@pytest.mark.parametrize("name", CORPORA)
def test_the_coins_change_no_length(pair_tokenizer, name, monkeypatch):
    """Had every coin fallen the other way, each part would be as long: the law behind it."""
    source = NextSentencePairs(
        make_corpus(CORPORA[name](np.random.default_rng(1))), pair_tokenizer, 128, seed=8
    )
    lengths, labels = lengths_and_labels(source, range(1))
    coins = next_sentence.coins
    monkeypatch.setattr(next_sentence, "coins", lambda number, rng: 1 - coins(number, rng))
    others, opposite = lengths_and_labels(source, range(1))
    assert np.array_equal(opposite, 1 - labels)
    assert np.array_equal(others, lengths)


def random_documents(count: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(3, 30, rng.integers(2, 40)).tolist() for _ in range(count)]


@both_kinds
def test_packed_pairs_equal_those_made_one_by_one(pair_tokenizer, kind):
    pairs = kind(make_corpus(random_documents(60)), pair_tokenizer, 64, seed=1).epoch(0)
    indices = np.random.default_rng(0).permutation(len(pairs))
    packed, expected = pairs.pack(indices), [pairs[int(index)] for index in indices]
    assert packed.makers.keys() == expected[0].keys()
    for name in expected[0]:
        assert gather(packed, name).values.tolist() == gather(expected, name).values.tolist(), name
        assert gather(packed, name).lengths.tolist() == gather(expected, name).lengths.tolist(), name


@both_kinds
def test_epochs_differ_and_are_functions_of_seed_and_number(pair_tokenizer, kind):
    source = kind(make_corpus(random_documents(30)), pair_tokenizer, 64, seed=6)
    assert isinstance(source, ExampleSource)
    first, again, second = source.epoch(0), source.epoch(0), source.epoch(1)
    assert isinstance(first, Examples)
    for name in (*SIDES, "labels"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
    assert len(first) != len(second) or not np.array_equal(first.first, second.first)


@pytest.mark.parametrize(("name", "role"), zip(KINDS, ("cls", "sep"), strict=True))
def test_mistakes_are_named(pair_tokenizer, name, role):
    corpus = make_corpus([[5, 5], [5, 5]])
    with pytest.raises(ValueError, match=r"sequence_length is 4, but"):
        KINDS[name](corpus, pair_tokenizer, 4, seed=0)
    setattr(pair_tokenizer, f"{role}_token", None)
    with pytest.raises(ValueError, match=f"{name} needs the tokenizer's {role}_token"):
        KINDS[name](corpus, pair_tokenizer, 64, seed=0)
