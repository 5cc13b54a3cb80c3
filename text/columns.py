"""Columns of values as a data set keeps them: each of one kind, and the row that is of another is named."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from datasets import Dataset

from ..ground.messages import first_line
from .bad_records import RowError, foreign_in

KINDS: dict[type, str] = {
    bool: "truth values",
    int: "numbers",
    float: "numbers",
    str: "texts",
    list: "lists",
    dict: "objects",
}
"""What values of a type are called."""


def as_rows(columns: Mapping[str, Sequence[Any]]) -> Dataset:
    """Make a data set of columns, which hold the same number of values.

    Raises:
        RowError: A value is of another kind than those before it, or fits into no column.
    """
    return Dataset(pa.table({name: as_array(name, values) for name, values in columns.items()}))


def as_array(column: str, values: Sequence[Any]) -> pa.Array | pa.ChunkedArray:
    """Make an array of the values of a column.

    Raises:
        RowError: A value is of another kind than those before it, or fits into no column.
    """
    try:
        array = pa.array(values)
    except UnicodeError as error:
        bad = ((row, foreign_in({column: value}, [column])) for row, value in enumerate(values))
        row, problem = next((row, problem) for row, problem in bad if problem)
        raise RowError(row, f"is bad: {problem}: correct it", problem) from error
    except (pa.ArrowException, OverflowError) as error:
        raise odd_value(column, values, error) from error
    has_numbers = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if has_numbers:  # and truths among them became 0 and 1
        for row, value in enumerate(values):
            if isinstance(value, bool):
                raise RowError(
                    row,
                    f"has {value} in column {column!r}, where others have numbers: correct it",
                    another_kind(column),
                )
    return array


def odd_value(column: str, values: Sequence[Any], error: Exception) -> RowError:
    """Say which value is the first that does not go with those before it."""
    fitting, row = 0, len(values) - 1
    while fitting < row:  # the first `fitting` values go together, the first `row + 1` do not
        middle = (fitting + row) // 2
        fitting, row = (middle + 1, row) if go_together(values[: middle + 1]) else (fitting, middle)
    shown = f"has {values[row]!r:.60} in column {column!r}"
    earlier = next((value for value in values[:row] if value is not None), None)
    kinds = [KINDS.get(type(value)) for value in (earlier, values[row])]
    if earlier is None or kinds[0] == kinds[1]:
        reason = first_line(error)
        return RowError(
            row,
            f"{shown}, which does not go together with the rows before it ({reason}): correct it",
            another_kind(column),
        )
    return RowError(
        row,
        f"{shown}, where the rows before it have {kinds[0]}: give all rows the same kind",
        another_kind(column),
    )


def another_kind(column: str) -> str:
    """Describe why a value does not go with others."""
    return f"has a value of another kind in column {column!r}"


def rows_of_other_kinds(columns: Mapping[str, Sequence[Any]]) -> dict[int, str]:
    """Find the rows whose value is of another kind than most in its column, and say why they are bad.

    >>> rows_of_other_kinds({"x": [1, "a", None, "b"]})
    {0: "has a value of another kind in column 'x'"}
    """
    found: dict[int, str] = {}
    for column, values in columns.items():
        kinds = [KINDS.get(type(value)) for value in values]
        most = Counter(kind for kind in kinds if kind is not None).most_common(1)
        for row, kind in enumerate(kinds):
            if kind is not None and kind != most[0][0]:
                found.setdefault(row, another_kind(column))
    return found


def go_together(values: Sequence[Any]) -> bool:
    """Return whether values fit into one array."""
    try:
        pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return False
    return True
