"""Random choices in many sequences at once, over one flat array.

Legend: S sequences, I items of all sequences, K segments of all sequences.
"""

import numpy as np


def choose_each(items: np.ndarray, chosen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Choose `chosen` (S,) of the `items` (S,) of each sequence, all choices alike likely; flags (I,)."""
    starts = np.cumsum(items) - items
    # Sorting by a random key within each sequence is a shuffle; the first of a shuffle are a fair choice.
    order = np.argsort(np.repeat(np.arange(len(items)), items) + rng.random(items.sum()))
    rank = np.arange(len(order)) - np.repeat(starts, items)
    flags = np.zeros(len(order), dtype=bool)
    flags[order[rank < np.repeat(chosen, items)]] = True
    return flags


def segment_each(items: np.ndarray, segments: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Cut the `items` (S,) of each sequence into `segments` (S,) runs, all cuts alike likely; lengths (K,).

    `random_segmentation` of T5's code (Raffel et al., 2020). No run is empty, but a sequence of no items is
    one run of length 0.
    """
    counts = np.maximum(items, 1)
    begins = np.ones(counts.sum(), dtype=bool)
    inner = np.ones(counts.sum(), dtype=bool)
    inner[np.cumsum(counts) - counts] = False
    begins[inner] = choose_each(counts - 1, segments - 1, rng)
    lengths = np.diff(np.flatnonzero(begins), append=len(begins))
    return lengths * np.repeat(items > 0, segments)


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
