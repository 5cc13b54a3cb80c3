"""The text infilling and sentence permutation of Lewis et al. (2020), section 2.2."""

import math
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from tercet.pretraining.objectives import randomness
from tercet.pretraining.objectives.denoising import Denoising, infill, permutation, without_excess
from tercet.pretraining.objectives.randomness import SequenceDraws

from ...word_level import word_level

MASK, EOS, FIRST_WORD = 3, 2, 5


def make_tokenizer() -> PreTrainedTokenizerFast:
    words = ["<s>", "<pad>", "</s>", "<mask>", "<unk>", *(f"w{i}" for i in range(100))]
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "mask_token": "<mask>", "unk_token": "<unk>"}
    return word_level(words, **roles)


class Script:
    """A generator whose draws are written down; the last ones of a list are 0.1."""

    def __init__(self, *uniform: list[float]):
        self.uniform = iter(uniform)

    def random(self, counts):
        draw = next(self.uniform)
        return np.append(draw, np.full(counts.sum() - len(draw), 0.1))


def test_hand_worked_infilling():
    """Of ten tokens five are hidden: runs of 0, 3 and (cut from 4) 2, each one mask in a row of eight.

    The places of the masks are drawn: 1, 3, and 1 once more, in whose stead comes 5.
    """
    draws: Any = Script([0.01, 0.5, 0.7], [0.2, 0.4, 0.13], [0.7])
    corrupted, lengths = infill(np.arange(10, 20), np.array([10]), 0.5, 3.0, MASK, draws)
    assert lengths.tolist() == [8]
    assert corrupted.tolist() == [10, MASK, 11, MASK, 15, MASK, 18, 19]


def test_hand_worked_permutation():
    """A B C . | D E . | F keeps each sentence together; a second text is not mixed in."""
    starts = np.array([1, 0, 0, 0, 1, 0, 0, 1, 0, 1], dtype=bool)
    draws: Any = Script([0.5, 0.1, 0.9, 0.8, 0.2])
    order = permutation(starts, np.array([8, 2]), draws)
    assert order.tolist() == [4, 5, 6, 0, 1, 2, 3, 7, 9, 8]


def test_span_lengths_follow_poisson_within_three_sigma():
    """Runs between kept neighbours are known by the gap that their mask stands for."""
    length, rate = 400_000, 0.3
    ids = np.arange(FIRST_WORD + 1, length + FIRST_WORD + 1)
    corrupted, _ = infill(ids, np.array([length]), rate, 3.0, MASK, SequenceDraws(1, np.arange(1)))
    masks = corrupted == MASK
    assert length - (~masks).sum() == round(rate * length)
    lone = np.flatnonzero(masks[1:-1] & ~masks[:-2] & ~masks[2:]) + 1
    gaps = corrupted[lone + 1] - corrupted[lone - 1] - 1
    for size in range(9):
        probability = math.exp(-3) * 3**size / math.factorial(size)
        sigma = math.sqrt(len(gaps) * probability * (1 - probability))
        assert abs((gaps == size).sum() - len(gaps) * probability) <= 3 * sigma
    assert abs(gaps.mean() - 3) <= 3 * math.sqrt(3 / len(gaps))


def test_masks_are_placed_uniformly(monkeypatch):
    """One run of one token in ten: each of the ten places is alike likely (3 sigma)."""
    draws = 20_000
    monkeypatch.setattr(randomness, "poisson_cumulative", lambda mean: np.array([0.0, 1.0]))  # all are 1
    texts = np.tile(np.arange(10, 20), draws)
    corrupted, lengths = infill(texts, np.full(draws, 10), 0.1, 1.0, MASK, SequenceDraws(1, np.arange(draws)))
    assert (lengths == 10).all()
    counts = (corrupted.reshape(draws, 10) == MASK).sum(axis=0)
    assert np.abs(counts - draws / 10).max() <= 3 * math.sqrt(draws * 0.1 * 0.9)


@pytest.mark.parametrize("mean", [0.1, 1.0, 3.0])
def test_a_source_is_never_longer_than_its_text(mean):
    texts = np.repeat([15, 1, 63], 2_000)
    ids = np.arange(FIRST_WORD, FIRST_WORD + texts.sum())
    spoiled, lengths = infill(ids, texts, 0.3, mean, MASK, SequenceDraws(4, np.arange(len(texts))))
    assert (lengths <= texts).all()
    assert lengths.sum() == len(spoiled)
    kept = np.add.reduceat(spoiled != MASK, lengths.cumsum() - lengths)
    assert kept.tolist() == (texts - np.rint(0.3 * texts)).tolist()
    assert (np.diff(spoiled[spoiled != MASK]) > 0).all()


def test_of_too_many_runs_some_of_length_0_are_left_out():
    lengths, spans = without_excess(
        np.array([0, 2, 0, 0, 1, 0, 0, 1, 5]), np.array([5, 3, 1]), np.array([3, 1, 5])
    )
    assert (lengths.tolist(), spans.tolist()) == ([2, 0, 1, 1, 5], [3, 1, 1])


def test_sentence_orders_are_alike_likely():
    draws = 6_000
    starts = np.tile(np.array([1, 0, 1, 1], dtype=bool), draws)
    order = permutation(starts, np.full(draws, 4), SequenceDraws(2, np.arange(draws))).reshape(draws, 4)
    orders, counts = np.unique(order - 4 * np.arange(draws)[:, None], axis=0, return_counts=True)
    assert len(orders) == 6
    assert np.abs(counts - draws / 6).max() <= 3 * math.sqrt(draws / 6 * 5 / 6)
    assert all(list(row).index(1) == list(row).index(0) + 1 for row in orders)


def test_targets_are_the_texts_and_sources_their_remains():
    lengths = [1, 2, 50, 128, 7]
    rng = np.random.default_rng(3)
    examples = [
        {"input_ids": 5 + rng.permutation(100)[:n] if n <= 100 else rng.integers(5, 105, n),
         "sentence_starts": rng.random(n) < 0.1, "index": n}
        for n in lengths
    ]  # fmt: skip
    sources, targets = Denoising(make_tokenizer(), EOS).pairs(examples, 4)
    for source, target, example, length in zip(sources, targets, examples, lengths, strict=True):
        assert target.tolist() == [*example["input_ids"], EOS]
        assert source[-1] == EOS
        kept = source[:-1][source[:-1] != MASK]
        assert len(kept) <= length - round(0.3 * length)
        assert set(kept) <= set(example["input_ids"])
