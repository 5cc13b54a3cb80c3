"""A share of labelled rows that is held out at random, where a recipe names no rows to measure on."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from datasets import Dataset


def split_off(
    rows: Dataset,
    share: float,
    seed: int,
    labels: Sequence[str] | None = None,
    groups: Sequence[Any] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Hold out a random share of rows: the numbers of those that are left, and of the share, ascending.

    Args:
        labels: Of the rows: they are then held out in proportion, and at least one row of each is left.
        groups: Of the rows: all of one are then held out or none, and labels do not matter.
    """
    if groups is None:
        rest, held_out = divide(len(rows), share, seed, labels)
    else:
        rest, held_out = divide_groups(groups, share, seed)
    if not (len(rest) and len(held_out)):
        raise ValueError(
            f"data.validation is left out, and data.validation_share = {share:g} of the rows ({len(rows)}) "
            f"leaves {len(rest)} for training and {len(held_out)} for validation: name a file of validation "
            "rows (data.validation), change the share, or add rows"
        )
    return rest, held_out


def divide(
    num_rows: int, share: float, seed: int, labels: Sequence[str] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Draw which of the rows are held out; the numbers of the others, and theirs, ascending."""
    order, num_held_out = np.random.default_rng(seed).permutation(num_rows), round(share * num_rows)
    if labels is not None:
        order = taking_turns(order, np.unique(np.array(labels, dtype=object), return_inverse=True)[1])
    return np.sort(order[num_held_out:]), np.sort(order[:num_held_out])


def divide_groups(groups: Sequence[Any], share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw which groups are held out, as many as have no more than a share of the rows; as in `divide`.

    >>> [rows.tolist() for rows in divide_groups(["a", "b", "a", "c", "b"], 0.4, 0)]
    [[0, 1, 2, 4], [3]]
    """
    numbers = np.unique(np.array([*map(str, groups)], dtype=object), return_inverse=True)[1]
    sizes, room, drawn = np.bincount(numbers), round(share * len(groups)), list[int]()
    for group in np.random.default_rng(seed).permutation(len(sizes)):
        if sizes[group] <= room:
            room -= sizes[group]
            drawn.append(group)
    is_held_out = np.isin(numbers, drawn)
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


def taking_turns(order: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Change an order of rows so that any beginning of it has the labels in proportion.

    One row of each label, perhaps its only one, comes last.

    Args:
        order: The numbers of the rows, (E,).
        labels: The number of each row's label, (E,).
    """
    counts = np.bincount(labels)
    by_label, sizes = np.argsort(labels[order], kind="stable"), np.repeat(counts, counts)
    turns = np.concatenate([np.arange(count) for count in counts])
    places = np.where(turns == sizes - 1, 1.0, (turns + 0.5) / sizes)
    return order[by_label[np.lexsort((by_label, places))]]
