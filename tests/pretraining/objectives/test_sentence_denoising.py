"""Sentence denoising: which words are deleted, and what encoder and decoder read."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tercet.pretraining.objectives.randomness import SequenceDraws
from tercet.pretraining.objectives.recipes import ObjectiveContext
from tercet.pretraining.objectives.sentence_denoising import SentenceDenoising, by_sentences, kept_tokens

from ...corpora import make_corpus
from .conftest import read

CLS, SEP = 1, 2


KIND = "sentence_denoising"


def framed(words: list[list[int]]) -> dict[str, Any]:
    """Make an example of words of one token or more."""
    starts = [True, *(place == 0 for word in words for place in range(len(word))), True]
    ids = [CLS, *(token for word in words for token in word), SEP]
    return {"input_ids": np.array(ids), "word_starts": np.array(starts), "index": 0}


def test_the_numbers_are_those_of_the_paper():
    recipe = read(KIND)
    assert recipe.deletion_probability == 0.6
    assert recipe.pooling == "mean"


def test_an_example_worked_by_hand(pair_tokenizer, monkeypatch):
    """Numbers from 0.6 on stay: `a` and `dd` of the first sentence, the largest of the second."""
    sentences = [framed([[10], [11, 12], [13], [14, 15]]), framed([[20, 21], [22], [23]])]
    draws = [0.0, 0.7, 0.1, 0.59, 0.6, 0.0, 0.0, 0.2, 0.5, 0.3, 0.0]
    script = SimpleNamespace(random=lambda counts: np.array(draws)[: counts.sum()])
    monkeypatch.setattr(SequenceDraws, "of", lambda examples, seed: script)
    batch = SentenceDenoising(pair_tokenizer).collate(sentences, 0)
    assert batch["input_ids"].tolist() == [[CLS, 10, 14, 15, SEP, CLS, 22, SEP]]
    assert batch["cu_seq_lens_k"].tolist() == [0, 5, 8]
    assert batch["decoder_input_ids"].tolist() == [
        [CLS, 10, 11, 12, 13, 14, 15, CLS, 20, 21, 22, 23],
    ]
    assert batch["labels"].tolist() == [[10, 11, 12, 13, 14, 15, SEP, 20, 21, 22, 23, SEP]]
    assert batch["cu_seq_lens_q"].tolist() == [0, 7, 12]
    assert SentenceDenoising(pair_tokenizer).targets(batch)["reconstruction"] == 12


def test_words_are_deleted_as_a_whole_at_the_rate_within_three_standard_deviations():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 4, 60_000)
    begins = np.concatenate([[0], sizes.cumsum()[:-1]])
    special, edges = np.zeros(sizes.sum(), dtype=bool), np.arange(0, len(sizes) + 1, 30)
    bounds = np.append(begins, sizes.sum())[edges]
    is_kept = kept_tokens(begins, special, bounds, 0.6, SequenceDraws(0, np.arange(2000)))
    words = np.add.reduceat(is_kept, begins)
    assert set(words[words > 0] - sizes[words > 0]) == {0}
    deleted = (words == 0).mean()
    assert abs(deleted - 0.6) < 3 * np.sqrt(0.6 * 0.4 / len(sizes))


def test_numbers_of_words_that_stay_are_binomial_but_never_none():
    """Of three words at 0.6: none stays in 0.216 of the cases, and then one of them does."""
    number = 30_000
    begins = np.arange(3 * number)
    edges = np.arange(0, 3 * number + 1, 3)
    is_kept = kept_tokens(begins, np.zeros(3 * number, bool), edges, 0.6, SequenceDraws(0, np.arange(number)))
    counts = np.bincount(is_kept.reshape(-1, 3).sum(axis=1), minlength=4)
    shares = np.array([0, 0.216 + 0.432, 0.288, 0.064])
    assert counts[0] == 0
    assert (np.abs(counts - number * shares) <= 3 * np.sqrt(number * shares * (1 - shares))).all()


def test_the_last_word_that_stays_is_any_of_them():
    number = 30_000
    edges = np.arange(0, 3 * number + 1, 3)
    special = np.zeros(3 * number, bool)
    draws = SequenceDraws(1, np.arange(number))
    is_kept = kept_tokens(np.arange(3 * number), special, edges, 1 - 1e-12, draws)
    counts = is_kept.reshape(-1, 3).sum(axis=0)
    assert counts.sum() == number
    assert (np.abs(counts - number / 3) < 3 * np.sqrt(number * 2 / 9)).all()


def test_examples_are_single_sentences(pair_tokenizer):
    corpus = make_corpus([[5, 3, 9], [40, 4]])
    source = read(KIND).examples(corpus, ObjectiveContext(pair_tokenizer, 32))
    texts = [source[index]["input_ids"][1:-1].tolist() for index in range(len(source))]
    starts = [(0, 5), (5, 8), (8, 17), (17, 47), (47, 57), (57, 61)]  # 40 tokens are too many
    assert texts == [list(range(10 + first, 10 + last)) for first, last in starts]


def test_what_examples_cost_is_estimated(pair_tokenizer):
    corpus = make_corpus([[20] * 400])
    corpus.tokens[:] = 7
    source = read(KIND).examples(corpus, ObjectiveContext(pair_tokenizer, 32))
    assert source.lengths[0] == (2 + 0.4 * 20) + (20 + 1)
    objective = read(KIND).build(ObjectiveContext(pair_tokenizer, 32))
    batch = objective.collate([source[index] for index in range(400)], 0)
    tokens = batch["input_ids"].numel() + batch["decoder_input_ids"].numel()
    assert tokens == pytest.approx(source.lengths.sum(), abs=3 * np.sqrt(400 * 20 * 0.24))


def test_a_view_by_sentences_has_the_same_tokens():
    corpus = make_corpus([[5, 3], [9]])
    view = by_sentences(corpus)
    assert view.num_documents == 3
    assert [view.document(index).tolist() for index in range(3)] == [
        corpus.sentence(index).tolist() for index in range(3)
    ]
