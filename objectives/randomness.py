"""Random numbers for packed tokens: the next ones of a generator, or a hash of what each token is.

Legend: S sequences, N packed tokens, n of these.
"""

from typing import Protocol

import numpy as np

from ..training.packing import restarting_positions


class Draws(Protocol):
    """Random numbers for packed tokens, of which each may need several: `purpose` counts them from 0 to 3."""

    def uniform(self, places: np.ndarray, purpose: int) -> np.ndarray:
        """Draw from [0, 1) for the tokens at `places` (n,), in steps of 2^-24: 32-bit floats (n,)."""
        ...

    def below(self, limit: int, places: np.ndarray, purpose: int) -> np.ndarray:
        """Draw integers from 0 up to, but not including, `limit` for the tokens at `places` (n,): (n,)."""
        ...


class GeneratedDraws:
    """`Draws` that a generator makes one after another, whatever they are for."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng

    def uniform(self, places: np.ndarray, purpose: int) -> np.ndarray:
        """Draw the next numbers."""
        return self.rng.random(len(places), dtype=np.float32)

    def below(self, limit: int, places: np.ndarray, purpose: int) -> np.ndarray:
        """Draw the next integers."""
        return self.rng.integers(limit, size=len(places))


class HashedDraws:
    """`Draws` that are functions of a seed, of the sequence's number, and of the token's place in it.

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

    def uniform(self, places: np.ndarray, purpose: int) -> np.ndarray:
        """Take the upper 24 bits of the hashes."""
        return (self._hashes(places, purpose) >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)

    def below(self, limit: int, places: np.ndarray, purpose: int) -> np.ndarray:
        """Stretch the upper 32 bits of the hashes over the range (Lemire, 2019, without the rejection)."""
        upper = self._hashes(places, purpose) >> np.uint64(32)
        return (upper * np.uint64(limit) >> np.uint64(32)).astype(np.int64)

    def _hashes(self, places: np.ndarray, purpose: int) -> np.ndarray:
        return splitmix(self.states[places] + np.array([purpose + 1], dtype=np.uint64) * GOLDEN)


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
