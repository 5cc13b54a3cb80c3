"""Random numbers for the sequences of a batch, and choices in many of them at once, over one flat array.

Each sequence has a generator of its own, which a seed and the number of its example begin: so its numbers do
not depend on what else is in the batch, and processes that collate different examples draw what one process
draws that collates all.

The generators are SplitMix64 (Steele, Lea and Flood, 2014): since the n-th number is a hash of a seed and n,
any number can be had without those before it.

Legend: S sequences, N packed tokens, n of these, I items of all sequences, K segments of all sequences.
"""

from collections.abc import Sequence
from math import lgamma, log

import numpy as np

from ...data.steps.examples import gather
from ...data.steps.objective import INDEX, Example
from ...data.steps.packing import restarting_positions, stretches
from ...data.steps.windows import splitmix

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""What SplitMix64 counts by."""


class TokenDraws:
    """Random numbers of packed tokens, of which each may need several: `purpose` counts them from 0 to 3.

    Args:
        seed: Seed of all sequences.
        numbers: What tells the sequences apart (S,).
        lengths: How many tokens each has (S,).
    """

    def __init__(self, seed: int, numbers: np.ndarray, lengths: np.ndarray):
        counters = restarting_positions(lengths).astype(np.uint64) * PURPOSES
        self.states = seeds_of(seed, numbers).repeat(lengths) + counters * GOLDEN  # (N,)

    def uniform(self, positions: np.ndarray, purpose: int) -> np.ndarray:
        """Draw from [0, 1), in steps of 2^-24, for the tokens at `positions` (n,): 32-bit floats."""
        return (self._hashes(positions, purpose) >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)

    def below(self, limit: int, positions: np.ndarray, purpose: int) -> np.ndarray:
        """Draw integers from 0 up to, but not including, `limit` for the tokens at `positions` (n,).

        The upper 32 bits of the hashes are stretched over the range (Lemire, 2019, without the rejection).
        """
        upper = self._hashes(positions, purpose) >> np.uint64(32)
        return (upper * np.uint64(limit) >> np.uint64(32)).astype(np.int64)

    def _hashes(self, positions: np.ndarray, purpose: int) -> np.ndarray:
        return splitmix(self.states[positions] + np.array([purpose + 1], dtype=np.uint64) * GOLDEN)


class SequenceDraws:
    """The next random numbers of each sequence's generator.

    Args:
        seed: Seed of all sequences; numbers are others than those of `TokenDraws` with the same one.
        numbers: What tells the sequences apart (S,).
    """

    def __init__(self, seed: int, numbers: np.ndarray):
        self.seeds = ~seeds_of(seed, numbers)
        self.used = np.zeros(len(numbers), dtype=np.int64)

    @classmethod
    def of(cls, examples: Sequence[Example], seed: int) -> "SequenceDraws":
        return cls(seed, gather(examples, INDEX).values)

    def random(self, counts: np.ndarray, kind: type[np.floating] = np.float64) -> np.ndarray:
        """Draw as many numbers from [0, 1) as `counts` (S,) say for each sequence, end to end.

        They are multiples of 2^-53, or of 2^-24 for 32-bit floats.
        """
        counters = stretches(self.used + 1, counts).astype(np.uint64)
        self.used = self.used + counts
        bits = np.finfo(kind).nmant + 1
        hashes = splitmix(self.seeds.repeat(counts) + counters * GOLDEN) >> np.uint64(64 - bits)
        return hashes.astype(kind) * kind(2.0**-bits)

    def random_each(self) -> np.ndarray:
        return self.random(np.ones_like(self.used))


def seeds_of(seed: int, numbers: np.ndarray) -> np.ndarray:
    """Hash a seed and the numbers of sequences (S,) to the seeds of their generators."""
    return splitmix(splitmix(np.array([seed], dtype=np.uint64)) + numbers.astype(np.uint64) * GOLDEN)


PURPOSES = np.uint64(4)
"""Numbers that a token may need."""


def choose_each(items: np.ndarray, chosen: np.ndarray, draws: SequenceDraws) -> np.ndarray:
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
        numbers = draws.random(np.bincount(sequence, minlength=len(items)))
        drawn = starts[sequence] + (numbers * items[sequence]).astype(np.int64)
        number = np.arange(len(drawn))
        latest[drawn] = number
        is_repeated = flags[drawn] | (latest[drawn] != number)
        flags[drawn] = True
        sequence = sequence[is_repeated]
    return flags ^ is_complement.repeat(items)


def segment_each(items: np.ndarray, segments: np.ndarray, draws: SequenceDraws) -> np.ndarray:
    """Cut the `items` (S,) of each sequence into `segments` (S,) runs, all cuts equally likely; lengths (K,).

    `random_segmentation` of T5's code (Raffel et al., 2020). No run is empty, but a sequence of no items is
    one run of length 0.
    """
    inner = np.maximum(items - 1, 0)  # items that may begin a run; each sequence's first one does
    cuts = np.flatnonzero(choose_each(inner, segments - 1, draws))
    cuts += np.arange(1, len(items) + 1).repeat(segments - 1)
    first_runs = segments.cumsum() - segments
    begins = np.insert(cuts, first_runs - np.arange(len(items)), np.cumsum(inner + 1) - inner - 1)
    lengths = np.diff(begins, append=len(items) + inner.sum())
    return lengths * (items > 0).repeat(segments)


def poisson_until(totals: np.ndarray, mean: float, draws: SequenceDraws) -> tuple[np.ndarray, np.ndarray]:
    """Draw Poisson lengths until they add up to each total (S,); the lengths (K,) and their numbers (S,).

    The last length of a sequence is cut so that the sum is exact. Lengths of 0 occur before it.
    """
    cumulative = poisson_cumulative(mean)
    lengths, is_drawn = np.zeros((len(totals), 0), dtype=np.int64), np.zeros((len(totals), 0), dtype=bool)
    while ((missing := totals - lengths.sum(axis=1)) > 0).any():
        counts = np.where(missing > 0, missing / mean + 16, 0).astype(np.int64)
        is_new = np.arange(counts.max()) < counts[:, None]
        new = np.zeros(is_new.shape, dtype=np.int64)
        new[is_new] = cumulative.searchsorted(draws.random(counts), side="right")
        lengths, is_drawn = np.hstack([lengths, new]), np.hstack([is_drawn, is_new])
    ends = lengths.cumsum(axis=1)
    begins = ends - lengths
    needed = is_drawn & (begins < totals[:, None])
    cut = np.minimum(ends, totals[:, None]) - begins
    return cut[needed], needed.sum(axis=1)


def poisson_cumulative(mean: float) -> np.ndarray:
    """Return the probabilities that a Poisson length is at most 0, 1, 2, ..., up to all but one."""
    logs = [k * log(mean) - mean - lgamma(k + 1) for k in range(int(mean + 12 * mean**0.5) + 20)]
    return np.exp(logs).cumsum()
