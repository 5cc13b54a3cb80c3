"""Random choices in many sequences at once, over one flat array.

Legend: S sequences, I items of all sequences, K segments of all sequences.
"""

import numpy as np


def choose_each(items: np.ndarray, chosen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Choose `chosen` (S,) of the `items` (S,) of each sequence, all choices alike likely; flags (I,).

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
    """Cut the `items` (S,) of each sequence into `segments` (S,) runs, all cuts alike likely; lengths (K,).

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
