"""Sets of labels as columns hold them: lists of a row's labels, or a 0 or 1 for each label (multi-hot).

Lists of equal length that hold nothing but zeros and ones are multi-hot: as lists of labels, each would name
two labels again and again. Their places are the labels' numbers, which `task.label_names` names.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, List

from ..text.bad_records import RowError
from ..text.row_files import WHOLE
from ..text.rows import lists_of
from .labels import Labels, written


def hot_names(rows: Dataset, column: str, names: Sequence[str]) -> list[str]:
    """Give the names of the places of a column's lists if they are multi-hot; none if they are not.

    Args:
        rows: Have the column.
        column: Its name.
        names: Those that the recipe knows; by default, the places' numbers.

    Raises:
        ValueError: There are more or fewer names than places.
    """
    feature = rows.features[column]
    lists = lists_of(rows, column, "labels")
    widths = {len(values) for values in lists}
    width = max(widths)
    is_table = len(widths) == 1 and (width > 1 or len(names) == width == 1)
    are_numbers = isinstance(feature, List) and isinstance(feature.feature, ClassLabel)
    if are_numbers or not is_table or not all(map(are_hot, lists)):
        return []
    if names and len(names) != width:
        raise ValueError(
            f"column {column!r} has lists of {width} zeros and ones, one for each label, but "
            f"task.label_names has {len(names)} names: name each of the {width}"
        )
    return list(names) or [str(number) for number in range(width)]


def are_hot(values: Sequence[Any]) -> bool:
    """Tell whether a list holds nothing but zeros, ones and truths.

    >>> [are_hot(values) for values in ([0, 1], [1.0, 0.0], [True, False], ["0", "1"], [1, 2], ["a"])]
    [True, True, True, True, False, False]
    """
    return all(value in (0, 1, "0", "1") for value in values)


def require_set(values: Sequence[Any], known: Labels | None, row: int, column: str) -> None:
    """Make sure that a row's list is a set of labels, in either form.

    Raises:
        RowError: A value is no label, or none of those that are known, or a number stands there twice.
    """
    if not are_hot(values):
        for value in values:
            written(value, row, column) if known is None else known.number(value, row, column)
        require_once(values, row, column)


def require_once(values: Sequence[Any], row: int, column: str) -> None:
    """Raise a `RowError` if a list of labels has a number twice: it may be meant in the other form."""
    numbers = [name for value in values if WHOLE.fullmatch(name := written(value, row, column))]
    if len(set(numbers)) < len(numbers):
        raise RowError(
            row,
            f"has {values!r:.60} in column {column!r}, a list of labels that names one twice: name each "
            "once, or give all rows lists of one length with a 0 or 1 for each label",
            f"names a label twice in column {column!r}",
        )


def set_of(values: Sequence[Any], labels: Labels, row: int, column: str, *, is_hot: bool) -> np.ndarray:
    """Say of each label whether a row's list has it, (L,).

    Args:
        values: The list.
        labels: All labels.
        row: Where it stands.
        column: The same.
        is_hot: Whether it holds zeros and ones, not labels.

    Raises:
        RowError: A value is no label, or no 0 or 1, or a number stands twice in a list of labels.
    """
    if is_hot:
        if len(values) != len(labels) or not are_hot(values):
            raise RowError(
                row,
                f"has {values!r:.60} in column {column!r}, where training rows have {len(labels)} zeros and "
                "ones, one for each label: correct it",
                f"has no zeros and ones for all labels in column {column!r}",
            )
        return np.array([int(value) for value in values], dtype=np.int64)
    found = np.zeros(len(labels), dtype=np.int64)
    require_once(values, row, column)
    found[[labels.number(value, row, column) for value in values]] = 1
    return found


def tell_of_hot(column: str, names: Sequence[str], *, are_named: bool) -> None:
    """Warn how lists of zeros and ones are read.

    Warns:
        UserWarning: Always.
    """
    called = "" if are_named else ", called by their numbers: task.label_names names them"
    warnings.warn(f"column {column!r} has a 0 or 1 for each of {len(names)} labels{called}", stacklevel=2)
