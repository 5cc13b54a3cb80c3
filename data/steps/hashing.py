"""Hashes of numbers, of which random numbers are made that need no others before them."""

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""What SplitMix64 counts by."""


def splitmix(states: np.ndarray) -> np.ndarray:
    """Hash 64-bit states: SplitMix64's output, variant 13 of Stafford's mixers."""
    mixed = states ^ (states >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
