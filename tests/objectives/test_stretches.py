"""Documents are cut into stretches of two sentences or more, and stretches of different documents matched."""

import numpy as np
import pytest

from tercet.objectives.sentence_pairs import cut_documents, find_partners, match_strangers
from tercet.text.corpus import offsets


def cut(documents: list[list[int]], budget: int, short_sequence_probability: float = 0.0) -> list[list[int]]:
    """Cut documents, given as the lengths of their sentences."""
    ends = offsets(np.array([len(document) for document in documents]))
    bounds = np.stack([ends[:-1], ends[1:]], axis=1)
    sentences = offsets(np.concatenate(documents))
    return cut_documents(
        bounds, sentences, budget, short_sequence_probability, np.random.default_rng(0)
    ).tolist()


def test_a_stretch_reaches_the_budget():
    assert cut([[4] * 6], 12) == [[0, 3], [3, 6]]
    assert cut([[4] * 6], 9) == [[0, 3], [3, 6]]
    assert cut([[40] * 6], 9) == [[0, 2], [2, 4], [4, 6]]
    assert cut([[4] * 6, [4] * 2], 99) == [[0, 6], [6, 8]]


def test_no_sentence_is_left_alone():
    """A stretch of three or more gives its last one away, and one of two takes it in."""
    assert cut([[4] * 7], 12) == [[0, 3], [3, 5], [5, 7]]
    assert cut([[4] * 7, [4] * 3], 8) == [[0, 2], [2, 4], [4, 7], [7, 10]]


@pytest.mark.parametrize("short_sequence_probability", [0.0, 0.1, 1.0])
def test_stretches_are_the_documents(short_sequence_probability):
    rng = np.random.default_rng(1)
    documents = [rng.integers(1, 30, rng.integers(2, 40)).tolist() for _ in range(100)]
    stretches = cut(documents, 64, short_sequence_probability)
    ends = offsets(np.array([len(document) for document in documents])).tolist()
    assert [start for start, _ in stretches[1:]] == [stop for _, stop in stretches[:-1]]
    assert {0, *(stop for _, stop in stretches)} >= set(ends)
    assert min(stop - start for start, stop in stretches) >= 2


@pytest.mark.parametrize("count", [2, 3, 5, 200])
def test_partners_are_of_different_documents_and_everyone_has_one(count):
    rng = np.random.default_rng(count)
    sizes, documents = rng.integers(1, 60, 1001), rng.integers(0, count, 1001)
    partners = find_partners(sizes, documents, rng)
    assert (documents[partners.couples[:, 0]] != documents[partners.couples[:, 1]]).all()
    assert (documents[partners.borrowers] != documents[partners.lenders]).all()
    assert np.array_equal(np.sort([*partners.couples.ravel(), *partners.borrowers]), np.arange(1001))
    assert len(partners.borrowers) < 100
    assert len(np.unique(documents[partners.borrowers])) <= 1
    differences = np.abs(np.diff(sizes[partners.couples]))
    assert differences.mean() < 2


def test_partners_are_equally_long_where_there_are_such():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 9, 1000)
    partners = find_partners(sizes, np.arange(1000), rng)
    assert (sizes[partners.couples[:, 0]] != sizes[partners.couples[:, 1]]).sum() <= 8


def test_a_lender_is_equally_long_or_the_next_larger():
    sizes = np.array([4, 4, 6, 9, 1, 4, 6, 7, 9, 3])
    documents = np.array([0, 0, 0, 0, 0, 1, 0, 1, 0, 0])
    partners = find_partners(sizes, documents, np.random.default_rng(0))
    assert len(partners.couples) == 2
    for borrower, lender in zip(partners.borrowers, partners.lenders, strict=True):
        assert sizes[lender] == (4 if sizes[borrower] <= 4 else 7)


def test_strangers_are_matched_with_those_that_wait_longest_last():
    couples, left = match_strangers(np.arange(7), np.array([3, 3, 5, 5, 5, 5, 5]))
    assert couples.tolist() == [[1, 2], [0, 3]]
    assert left.tolist() == [4, 5, 6]
