"""Hashed random numbers: those of the published generator, the same from anywhere, and evenly spread."""

import numpy as np
import pytest

from tercet.objectives.randomness import GOLDEN, HashedDraws, splitmix


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
    alone = HashedDraws(7, np.array([5]), np.array([4]))
    among = HashedDraws(7, np.array([2, 5, 9]), np.array([3, 4, 1]))
    for purpose in range(4):
        expected = alone.uniform(np.arange(4), purpose)
        assert among.uniform(np.arange(3, 7), purpose).tolist() == expected.tolist()
        assert among.below(100, np.array([5]), purpose) == alone.below(100, np.array([2]), purpose)


@pytest.mark.parametrize(("seeds", "numbers"), [((0, 1), (0, 0)), ((0, 0), (0, 1)), ((0, 1), (1, 0))])
def test_seeds_and_sequences_have_numbers_of_their_own(seeds, numbers):
    one, other = (
        HashedDraws(seed, np.array([number]), np.array([50])).uniform(np.arange(50), 0)
        for seed, number in zip(seeds, numbers, strict=True)
    )
    assert not np.isin(one, other).any()


def test_numbers_are_even_and_unrelated_within_three_sigma():
    """Means and covariances of neighbours in sequence, place and purpose; the counts of integers."""
    size = 300
    draws = HashedDraws(3, np.arange(size), np.full(size, size))
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
