"""Columns of values as a data set keeps them: each of one kind, and the row that is of another is named."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from datasets import Dataset

from .bad_records import RowError
from .corpus_files import first_line

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
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise odd_value(column, values, error) from error
    has_numbers = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if has_numbers:  # and truths among them became 0 and 1
        for row, value in enumerate(values):
            if isinstance(value, bool):
                raise RowError(
                    row, f"has {value} in column {column!r}, where others have numbers: correct it"
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
            row, f"{shown}, which does not go together with the rows before it ({reason}): correct it"
        )
    return RowError(row, f"{shown}, where the rows before it have {kinds[0]}: give all rows the same kind")


def go_together(values: Sequence[Any]) -> bool:
    """Tell whether values fit into one array."""
    try:
        pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return False
    return True
