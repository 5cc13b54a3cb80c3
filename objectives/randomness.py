"""Random numbers for packed tokens, and random choices in many sequences at once, over one flat array.

A token's numbers are the next ones of a generator, or a hash of what the token is.

Legend: S sequences, N packed tokens, n of these, I items of all sequences, K segments of all sequences.
"""

from typing import Protocol

import numpy as np

from ..training.packing import restarting_positions


class Draws(Protocol):
    """Random numbers for packed tokens, of which each may need several: `purpose` counts them from 0 to 3."""

    def uniform(self, positions: np.ndarray, purpose: int) -> np.ndarray:
        """Draw from [0, 1) for the tokens at `positions` (n,), in steps of 2^-24: 32-bit floats (n,)."""
        ...

    def below(self, limit: int, positions: np.ndarray, purpose: int) -> np.ndarray:
        """Draw integers from 0 up to, but not including, `limit` for the tokens at `positions` (n,): (n,)."""
        ...


class GeneratedDraws:
    """`Draws` that a generator makes one after another, whatever they are for."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng

    def uniform(self, positions: np.ndarray, purpose: int) -> np.ndarray:
        """Draw the next numbers."""
        return self.rng.random(len(positions), dtype=np.float32)

    def below(self, limit: int, positions: np.ndarray, purpose: int) -> np.ndarray:
        """Draw the next integers."""
        return self.rng.integers(limit, size=len(positions))


class HashedDraws:
    """`Draws` that are functions of a seed, of the sequence's number, and of the token's position in it.

    SplitMix64 (Steele, Lea and Flood, 2014), one generator a sequence: since its n-th number is a hash of
    its seed and n, any of its numbers can be had without those before.

    Args:
        seed: Of all sequences.
        numbers: What tells the sequences apart (S,).
        lengths: How many tokens each has (S,).
    """

    def __init__(self, seed: int, numbers: np.ndarray, lengths: np.ndarray):
        seeds = splitmix(splitmix(np.array([seed], dtype=np.uint64)) + numbers.astype(np.uint64) * GOLDEN)
        counters = restarting_positions(lengths).astype(np.uint64) * PURPOSES
        self.states = seeds.repeat(lengths) + counters * GOLDEN  # (N,)

    def uniform(self, positions: np.ndarray, purpose: int) -> np.ndarray:
        """Take the upper 24 bits of the hashes."""
        return (self._hashes(positions, purpose) >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)

    def below(self, limit: int, positions: np.ndarray, purpose: int) -> np.ndarray:
        """Stretch the upper 32 bits of the hashes over the range (Lemire, 2019, without the rejection)."""
        upper = self._hashes(positions, purpose) >> np.uint64(32)
        return (upper * np.uint64(limit) >> np.uint64(32)).astype(np.int64)

    def _hashes(self, positions: np.ndarray, purpose: int) -> np.ndarray:
        return splitmix(self.states[positions] + np.array([purpose + 1], dtype=np.uint64) * GOLDEN)


PURPOSES = np.uint64(4)
"""Numbers that a token may need."""

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""What SplitMix64 counts by."""


def splitmix(states: np.ndarray) -> np.ndarray:
    """Hash 64-bit states: SplitMix64's output, variant 13 of Stafford's mixers."""
    mixed = states ^ (states >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def choose_each(items: np.ndarray, chosen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Choose `chosen` (S,) of the `items` (S,) of each sequence, all choices equally likely; flags (I,).

    Items are drawn until enough different ones have been: which these are does not depend on the repetitions
    in between. Where most are to be chosen, those that are not are drawn.
    """
    starts = items.cumsum() - items
    is_complement = 2 * chosen > items
    sequence = np.arange(len(items)).repeat(np.where(is_complement, items - chosen, chosen))  # of each draw
    flags = np.zeros(items.sum(), dtype=bool)
    latest = np.empty(len(flags), dtype=np.int64)
    while len(sequence):
        drawn = starts[sequence] + (rng.random(len(sequence)) * items[sequence]).astype(np.int64)
        number = np.arange(len(drawn))
        latest[drawn] = number
        is_repeated = flags[drawn] | (latest[drawn] != number)
        flags[drawn] = True
        sequence = sequence[is_repeated]
    return flags ^ is_complement.repeat(items)


def segment_each(items: np.ndarray, segments: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Cut the `items` (S,) of each sequence into `segments` (S,) runs, all cuts equally likely; lengths (K,).

    `random_segmentation` of T5's code (Raffel et al., 2020). No run is empty, but a sequence of no items is
    one run of length 0.
    """
    inner = np.maximum(items - 1, 0)  # items that may begin a run; each sequence's first one does
    cuts = np.flatnonzero(choose_each(inner, segments - 1, rng))
    cuts += np.arange(1, len(items) + 1).repeat(segments - 1)
    first_runs = segments.cumsum() - segments
    begins = np.insert(cuts, first_runs - np.arange(len(items)), np.cumsum(inner + 1) - inner - 1)
    lengths = np.diff(begins, append=len(items) + inner.sum())
    return lengths * (items > 0).repeat(segments)


def poisson_until(totals: np.ndarray, mean: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw Poisson lengths until they add up to each total (S,); the lengths (K,) and their numbers (S,).

    The last length of a sequence is cut so that the sum is exact. Lengths of 0 occur before it.
    """
    width = int(totals.max(initial=0) / mean) + 16
    draws = rng.poisson(mean, (len(totals), width))
    while (draws.sum(axis=1) < totals).any():
        draws = np.concatenate([draws, rng.poisson(mean, (len(totals), width))], axis=1)
    ends = draws.cumsum(axis=1)
    begins = ends - draws
    needed = begins < totals[:, None]
    lengths = np.minimum(ends, totals[:, None]) - begins
    return lengths[needed], needed.sum(axis=1)
