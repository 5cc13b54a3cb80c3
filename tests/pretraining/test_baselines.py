"""Language models that only count."""

import math

import numpy as np
import pytest

from tercet.reports.pretraining.baselines import TrigramModel

A, B, C = 0, 1, 2


def every_probability(model: TrigramModel, context: int) -> np.ndarray:
    return model.probability(np.full(model.vocab_size, context), np.arange(model.vocab_size))


def test_hand_worked_trigram():
    """The document a b a b a c, with V = 3.

    Trigrams: ^^a ^ab aba(2) bab bac, five entries, four counted once and one twice: D3 = 4 / (4 + 2) = 2/3.
    Bigrams follow distinct tokens: ^a 1, ab 2 (after ^, b), ba 1, ac 1: D2 = 3 / (3 + 2) = 3/5.
    Unigrams follow distinct tokens: a 2 (^, b), b 1, c 1: D1 = 2 / (2 + 2) = 1/2.
    """
    model = TrigramModel.fit(np.array([A, B, A, B, A, C]), np.array([0, 6]), 3)
    given1 = 0.5 * 3 / 4
    unigram = {A: 1.5 / 4 + given1 / 3, B: 0.5 / 4 + given1 / 3, C: 0.5 / 4 + given1 / 3}
    given_a = 0.6 * 2 / 3
    after_a = {A: given_a * unigram[A], B: 1.4 / 3 + given_a * unigram[B], C: 0.4 / 3 + given_a * unigram[C]}
    given_ba = (2 / 3) * 2 / 2
    expected = [
        given_ba * after_a[A],
        (1 - 2 / 3) / 2 + given_ba * after_a[B],
        (1 - 2 / 3) / 2 + given_ba * after_a[C],
    ]
    assert every_probability(model, B * 4 + A) == pytest.approx(expected)


def test_probabilities_sum_to_one_after_seen_and_unseen_contexts():
    rng = np.random.default_rng(0)
    tokens, offsets = rng.integers(0, 20, 500), np.array([0, 1, 3, 3, 200, 500])
    model = TrigramModel.fit(tokens, offsets, 25)
    for context in [*(rng.integers(0, 26, 200) * 26 + rng.integers(0, 26, 200)), 24 * 26 + 3, 24 * 26 + 24]:
        probabilities = every_probability(model, int(context))
        assert (probabilities > 0).all()
        assert probabilities.sum() == pytest.approx(1)


def test_contexts_end_at_documents():
    tokens = np.array([A, B, C, A, B, C, A, B, C])
    model = TrigramModel.fit(tokens, np.array([0, 3, 6, 9]), 3)
    together = model.log_probability(tokens, np.array([0, 3, 6, 9]))
    alone = model.log_probability(tokens[:3], np.array([0, 3]))
    assert together == pytest.approx(np.tile(alone, 3))


def test_context_helps_where_there_is_one():
    """A walk on a cycle with noise: three letters tell the next, frequencies do not."""
    rng = np.random.default_rng(1)
    steps = np.where(rng.random(20_000) < 0.9, 1, rng.integers(0, 50, 20_000))
    tokens = np.cumsum(steps) % 50
    train, held_out = tokens[:15_000], tokens[15_000:]
    seen = np.bincount(train, minlength=50) + 1
    trigram = TrigramModel.fit(train, np.array([0, len(train)]), 50)
    ends = np.array([0, len(held_out)])
    entropy = -(0.902 * math.log(0.902) + 49 * 0.002 * math.log(0.002))
    assert -np.log(seen / seen.sum())[held_out].mean() == pytest.approx(math.log(50), abs=0.05)
    assert entropy - 0.05 < -trigram.log_probability(held_out, ends).mean() < entropy + 0.15
