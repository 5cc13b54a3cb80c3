"""Sentence order as Lan et al. (2020), section 3.1, define it, and the law that lengths tell nothing."""

from collections import Counter

import numpy as np
import pytest
from pydantic import TypeAdapter

from tercet.objectives.base_recipe import ObjectiveContext
from tercet.objectives.next_sentence import NextSentencePairs
from tercet.objectives.recipes import SingleObjectiveRecipe
from tercet.objectives.sentence_order import IN_ORDER, SWAPPED, SentenceOrderPairs, couple_counterparts

from ..pretraining.conftest import make_corpus

CLS, SEP = 1, 2


def random_documents(count: int, seed: int = 0, longest: int = 40) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 30, rng.integers(2, longest)).tolist() for _ in range(count)]


def make_pairs(documents: list[list[int]], tokenizer, length: int = 128, epoch: int = 0, **changes):
    return SentenceOrderPairs(make_corpus(documents), tokenizer, length, seed=1, **changes).epoch(epoch)


@pytest.mark.parametrize("label", [IN_ORDER, SWAPPED])
def test_hand_worked_example(pair_tokenizer, label):
    """A document of two sentences of three tokens: the second one comes first in a swapped pair."""
    source = SentenceOrderPairs(
        make_corpus([[3, 3]]), pair_tokenizer, 16, seed=0, short_sequence_probability=0.0
    )
    pairs = next(pairs for pairs in map(source.epoch, range(20)) if pairs.labels[0] == label)
    parts = ([10, 11, 12], [13, 14, 15]) if label == IN_ORDER else ([13, 14, 15], [10, 11, 12])
    example = pairs[0]
    assert example["input_ids"].tolist() == [CLS, *parts[0], SEP, *parts[1], SEP]
    assert example["token_type_ids"].tolist() == [0] * 5 + [1] * 4
    assert example["next_sentence_label"] == label


def test_both_parts_are_of_one_document_and_the_label_says_which_was_first(pair_tokenizer):
    documents = random_documents(600)
    corpus = make_corpus(documents)
    pairs = make_pairs(documents, pair_tokenizer)
    document = np.searchsorted(corpus.token_offsets, pairs.first[:, 0], side="right")
    assert np.array_equal(document, np.searchsorted(corpus.token_offsets, pairs.second[:, 0], side="right"))
    is_before = pairs.first[:, 1] <= pairs.second[:, 0]
    assert np.array_equal(is_before, pairs.labels == IN_ORDER)
    assert (is_before | (pairs.second[:, 1] <= pairs.first[:, 0])).all()


@pytest.mark.parametrize("documents", [random_documents(800), [[8] * 2000], [[5, 60]] * 501, [[4, 4]] * 7])
def test_pairs_in_order_and_swapped_ones_have_the_same_lengths(pair_tokenizer, documents):
    """As often, exactly; a pair without a counterpart has two equal parts."""
    for epoch in range(3):
        pairs = make_pairs(documents, pair_tokenizer, epoch=epoch)
        sizes = np.stack([np.diff(part)[:, 0] for part in (pairs.first, pairs.second)], axis=1)
        differ = sizes[:, 0] != sizes[:, 1]
        counts = [
            Counter(map(tuple, sizes[differ & (pairs.labels == label)].tolist()))
            for label in (IN_ORDER, SWAPPED)
        ]
        assert counts[0] == counts[1]
        assert abs(2 * int(pairs.labels.sum()) - len(pairs)) <= 1
        assert sizes.min() > 0


def test_counterparts_are_coupled():
    """9 | 3 finds 3 | 9, and 10 | 1 finds 1 | 10; those with longer first parts alone find none."""
    a, b = np.array([9, 1, 3, 10]), np.array([3, 10, 9, 1])
    couples, alone = couple_counterparts(a, b, np.random.default_rng(0))
    assert {frozenset(couple) for couple in couples.tolist()} == {frozenset({0, 2}), frozenset({1, 3})}
    assert alone.tolist() == []
    couples, alone = couple_counterparts(b + 10, b, np.random.default_rng(0))
    assert couples.tolist() == []
    assert sorted(alone.tolist()) == [0, 1, 2, 3]


def test_the_example_of_the_docstring(pair_tokenizer):
    """6 | 3 and 2 | 7 are cut by a token at least wherever counterparts differ: 5 | 1 and 1 | 5."""
    documents = [[6, 3], [2, 7]]
    pairs = make_pairs(documents, pair_tokenizer, 32, short_sequence_probability=0.0)
    sizes = [np.diff(part)[:, 0].tolist() for part in (pairs.first, pairs.second)]
    assert sizes in ([[5, 5], [1, 1]], [[1, 1], [5, 5]])
    assert sorted(pairs.labels.tolist()) == [IN_ORDER, SWAPPED]


@pytest.mark.parametrize("longest", [40, 6])
def test_no_cut_sentence_tells_the_label(pair_tokenizer, longest):
    """At either end of either part, as many are cut in pairs of one label as in pairs of the other."""
    documents = random_documents(2000, longest=longest)
    corpus = make_corpus(documents)
    is_begin = np.zeros(corpus.num_tokens + 1, dtype=bool)
    is_begin[corpus.sentence_offsets] = True
    pairs = make_pairs(documents, pair_tokenizer)
    is_cut = ~np.concatenate([is_begin[pairs.first], is_begin[pairs.second]], axis=1)
    shares = is_cut.mean(axis=0)
    assert shares.min() > 0.3
    differences = is_cut[pairs.labels == SWAPPED].mean(axis=0) - is_cut[pairs.labels == IN_ORDER].mean(axis=0)
    assert (np.abs(differences) <= 3 * np.sqrt(4 * shares * (1 - shares) / len(pairs))).all()


def test_a_single_couple_is_swapped_in_every_other_epoch(pair_tokenizer):
    source = SentenceOrderPairs(make_corpus([[5, 9], [9, 5]]), pair_tokenizer, 64, seed=2)
    labels = np.array([source.epoch(number).labels for number in range(200)])
    assert (labels.sum(axis=1) == 1).all()
    assert abs(labels[:, 0].mean() - 0.5) <= 3 * np.sqrt(0.25 / 200)


@pytest.mark.parametrize("longest", [40, 6])
def test_little_is_cut(pair_tokenizer, longest):
    """A tenth at most of what next-sentence prediction reads, of texts long and short."""
    documents = random_documents(2000, longest=longest)
    pairs = make_pairs(documents, pair_tokenizer)
    others = NextSentencePairs(make_corpus(documents), pair_tokenizer, 128, seed=1).epoch(0)
    assert len(pairs) == len(others)
    assert 0.9 < (pairs.lengths - 3).sum() / (others.lengths - 3).sum() <= 1


def test_pairs_fit_and_most_fill_the_sequence(pair_tokenizer):
    pairs = make_pairs(random_documents(400, longest=200), pair_tokenizer, 128)
    assert pairs.lengths.max() == 128
    assert (pairs.lengths > 120).mean() > 0.75


@pytest.mark.parametrize("length", [5, 6, 16])
def test_pairs_with_parts_of_one_token_fit(pair_tokenizer, length):
    rng = np.random.default_rng(0)
    documents = [rng.choice([1, 1, 1, 5, 40], rng.integers(2, 12)).tolist() for _ in range(100)]
    pairs = make_pairs(documents, pair_tokenizer, length)
    assert pairs.lengths.max() == length
    assert min(np.diff(pairs.first).min(), np.diff(pairs.second).min()) == 1


def test_the_terms_are_masked_tokens_and_sentence_order(pair_tokenizer):
    recipe = TypeAdapter(SingleObjectiveRecipe).validate_python(
        {"kind": "masked_language_modeling_with_sentence_order"}
    )
    objective = recipe.build(ObjectiveContext(pair_tokenizer, 64))
    pairs = recipe.examples(
        make_corpus(random_documents(10), numbered=False), ObjectiveContext(pair_tokenizer, 64)
    ).epoch(0)
    batch = objective.collate([pairs[index] for index in range(8)], np.random.default_rng(0))
    targets = objective.targets(batch)
    assert list(targets) == list(objective.weights) == ["mlm", "sop"]
    assert targets["sop"] == 8


def test_a_corpus_of_single_sentences_is_refused(pair_tokenizer):
    with pytest.raises(ValueError, match=r"sentence-order prediction needs at least 1 document\(s\) of two"):
        SentenceOrderPairs(make_corpus([[5]] * 3), pair_tokenizer, 64, seed=0)
