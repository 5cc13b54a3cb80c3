"""Hashed random numbers are evenly spread and the published generator's; choices are equally likely."""

from math import comb

import numpy as np
import pytest

from tercet.pretraining.objectives.randomness import (
    GOLDEN,
    SequenceDraws,
    TokenDraws,
    choose_each,
    poisson_until,
    segment_each,
    splitmix,
)


def test_hashes_are_the_numbers_of_splitmix64():
    """The first outputs for the seed 1234567, as in the Rosetta Code and Java's SplittableRandom."""
    states = np.uint64(1234567) + np.arange(1, 6, dtype=np.uint64) * GOLDEN
    assert splitmix(states).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_numbers_of_a_token_do_not_depend_on_its_company():
    alone = TokenDraws(7, np.array([5]), np.array([4]))
    among = TokenDraws(7, np.array([2, 5, 9]), np.array([3, 4, 1]))
    for purpose in range(4):
        expected = alone.uniform(np.arange(4), purpose)
        assert among.uniform(np.arange(3, 7), purpose).tolist() == expected.tolist()
        assert among.below(100, np.array([5]), purpose) == alone.below(100, np.array([2]), purpose)


@pytest.mark.parametrize(("seeds", "numbers"), [((0, 1), (0, 0)), ((0, 0), (0, 1)), ((0, 1), (1, 0))])
def test_seeds_and_sequences_have_numbers_of_their_own(seeds, numbers):
    one, other = (
        TokenDraws(seed, np.array([number]), np.array([50])).uniform(np.arange(50), 0)
        for seed, number in zip(seeds, numbers, strict=True)
    )
    assert not np.isin(one, other).any()


def test_numbers_are_even_and_unrelated_within_three_sigma():
    """Means and covariances of neighbours in sequence, place and purpose; the counts of integers."""
    size = 300
    draws = TokenDraws(3, np.arange(size), np.full(size, size))
    every = np.arange(size**2)
    numbers = np.stack([draws.uniform(every, purpose) for purpose in range(4)]).reshape(4, size, size) - 0.5
    assert np.abs(numbers.mean(axis=(1, 2))).max() <= 3 * np.sqrt(1 / 12 / size**2)
    pairs = [
        numbers[1:] * numbers[:-1],
        numbers[:, 1:] * numbers[:, :-1],
        numbers[..., 1:] * numbers[..., :-1],
    ]
    assert all(abs(pair.mean()) <= 3 * np.sqrt(1 / 144 / pair.size) for pair in pairs)
    counts = np.bincount(draws.below(10, every, 0), minlength=10)
    assert len(counts) == 10
    assert np.abs(counts - size**2 / 10).max() <= 3 * np.sqrt(size**2 * 0.09)


def test_next_numbers_of_a_sequence_do_not_depend_on_its_company():
    """However often and however many are drawn: choices that are repeated until they differ, too."""
    alone, among = SequenceDraws(7, np.array([5])), SequenceDraws(7, np.array([2, 5, 9]))
    for counts in ([3, 4, 0], [0, 2, 5], [1, 7, 1]):
        first, own = counts[0], counts[1]
        found = among.random(np.array(counts))[first : first + own]
        assert found.tolist() == alone.random(np.array([own])).tolist()
    items, chosen = np.array([40, 30, 500]), np.array([11, 12, 90])
    alone, among = SequenceDraws(7, np.array([5])), SequenceDraws(7, np.array([2, 5, 9]))
    for _ in range(2):
        found = choose_each(items, chosen, among)[40:70]
        assert found.tolist() == choose_each(items[1:2], chosen[1:2], alone).tolist()
    totals = np.array([4, 700, 90])
    lengths, spans = poisson_until(totals, 0.5, among)
    assert lengths[spans[0] : spans[:2].sum()].tolist() == poisson_until(totals[1:2], 0.5, alone)[0].tolist()


def test_next_numbers_are_even_and_others_than_those_of_tokens():
    size = 200_000
    draws = SequenceDraws(3, np.arange(4))
    numbers = draws.random(np.full(4, size // 4)) - 0.5
    assert abs(numbers.mean()) <= 3 * np.sqrt(1 / 12 / size)
    assert abs((numbers[1:] * numbers[:-1]).mean()) <= 3 * np.sqrt(1 / 144 / size)
    small = SequenceDraws(3, np.arange(4)).random(np.full(4, 500), np.float32)
    assert small.dtype == np.float32
    assert (np.abs(small.reshape(4, -1) - numbers.reshape(4, -1)[:, :500] - 0.5) <= 2**-24).all()
    of_tokens = TokenDraws(3, np.arange(4), np.full(4, 500)).states
    assert not np.isin(
        of_tokens, SequenceDraws(3, np.arange(4)).seeds[:, None] + np.arange(2000, dtype=np.uint64)
    ).any()


def test_every_choice_is_alike_likely():
    """2 of 4 items: the six choices within 3 sigma of a sixth each, and sequences do not mix."""
    draws = 30_000
    items, chosen = np.tile([4, 0, 3], draws), np.tile([2, 0, 3], draws)
    flags = choose_each(items, chosen, SequenceDraws(0, np.arange(len(items)))).reshape(draws, 7)
    assert flags[:, 4:].all()
    choices, counts = np.unique(flags[:, :4], axis=0, return_counts=True)
    assert len(choices) == 6
    assert (choices.sum(axis=1) == 2).all()
    assert np.abs(counts - draws / 6).max() <= 3 * np.sqrt(draws / 6 * 5 / 6)


@pytest.mark.parametrize(("items", "chosen"), [(5, 1), (5, 3), (6, 3), (7, 6), (4, 4), (4, 0)])
def test_dense_and_thin_choices_are_alike_likely(items, chosen):
    """The chi-square statistic of all choices lies within 3 sigma of its mean."""
    draws, ways = 20_000, comb(items, chosen)
    flags = choose_each(np.full(draws, items), np.full(draws, chosen), SequenceDraws(1, np.arange(draws)))
    choices, counts = np.unique(flags.reshape(draws, items), axis=0, return_counts=True)
    assert (choices.sum(axis=1) == chosen).all()
    assert len(choices) == ways
    chi_square = ((counts - draws / ways) ** 2 / (draws / ways)).sum()
    assert abs(chi_square - (ways - 1)) <= 3 * np.sqrt(2 * (ways - 1))


def test_segments_are_as_many_as_asked_and_make_up_the_whole():
    items, segments = np.array([7, 1, 0, 5]), np.array([3, 1, 1, 5])
    lengths = segment_each(items, segments, SequenceDraws(1, items))
    first, second, third, fourth = np.split(lengths, np.cumsum(segments)[:-1])
    assert first.sum() == 7
    assert first.min() >= 1
    assert second.tolist() == [1]
    assert third.tolist() == [0]
    assert fourth.tolist() == [1] * 5


def test_poisson_lengths_add_up_exactly():
    totals = np.array([0, 1, 10, 500])
    lengths, counts = poisson_until(totals, 3.0, SequenceDraws(2, totals))
    assert counts[0] == 0
    sums = [part.sum() for part in np.split(lengths, np.cumsum(counts)[:-1])]
    assert sums == totals.tolist()


def test_lengths_below_one_are_drawn_until_they_suffice():
    lengths, _ = poisson_until(np.array([300]), 0.05, SequenceDraws(3, np.array([0])))
    assert lengths.sum() == 300
