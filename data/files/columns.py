"""The columns of labelled rows: values of one kind, and what tasks read there: texts, numbers, lists, labels.

The cells of a table are the texts that stand there: nothing stands for a missing value, and `NA`, `007` and
`19.90` are texts like all others. What needs a number makes it of the text (`number_of`).
A column of a data set has values of one kind, and the row whose value is of another is named.
"""

import math
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow
from datasets import Dataset

from ...configs.messages import first_line
from .bad_rows import RowError, problem_of_values

WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})", re.ASCII)
"""A whole number; it fits into 64 bits."""

NUMBER = re.compile(r"-?((0|[1-9]\d{0,14})(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""Any number, but none that a float would round to another whole one."""

WITHOUT_WIDTH = dict.fromkeys(map(ord, "\u00ad\u200b\u200e\u200f\u2060\ufeff"))
"""Characters that no name is told by; those that join letters are not among them."""


def texts_of(rows: Dataset, column: str) -> list[str]:
    """Return a column of texts; numbers are texts, too, and a row without any is a `RowError`."""
    texts = [*map(text_of, rows[column][:])]
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise RowError(row, f"has no text in column {column!r} ({text!r}): take it out, or fill it in")
    return texts


def values_of(rows: Dataset, column: str) -> Sequence[Any]:
    """Return a column of anything; a row with nothing there is a `RowError`."""
    values = rows[column][:]
    for row, value in enumerate(values):
        if value is None or value == "":
            raise RowError(row, f"has nothing in column {column!r}: take it out, or fill it in")
    return values


def lists_of(rows: Dataset, column: str, of: str) -> Sequence[list[Any]]:
    """Return a column of lists, which may be empty.

    Args:
        of: What the lists hold, for the error.

    Raises:
        RowError: A row has no list there: neither a text nor a number is one of itself.
    """
    values = values_of(rows, column)
    for row, value in enumerate(values):
        if not isinstance(value, list):
            raise RowError(
                row,
                f"has {value!r:.60} in column {column!r}, which is no list of {of}: write a list, such as "
                '["a", "b"], into .jsonl, .json or .parquet; tables have none',
                f"has no list of {of} in column {column!r}",
            )
    return values


def require_from_zero(values: Sequence[Any], sizes: Sequence[int], column: str) -> None:
    """Refuse numbers that count from 1 what is counted from 0; bad rows among them do not matter.

    Args:
        values: A number of each row, or a list of numbers.
        sizes: How many there are to choose from in each row.

    Raises:
        RowError: No row has 0, and one has the number of all there are.
    """
    numbers = [{*map(number_of, value if isinstance(value, list) else [value])} for value in values]
    if any(0 in own for own in numbers):
        return
    for row, (own, size) in enumerate(zip(numbers, sizes, strict=True)):
        if size in own:
            raise RowError(
                row,
                f"has {size} in column {column!r}, which is to count from 0, and no row has 0: does it count "
                "from 1? Then subtract 1 from each of its numbers",
            )


UNLIKELY = 1e-3
"""Below this chance, it is no accident that the first choice is right in no row."""


def tell_of_no_first(numbers: Sequence[Any], sizes: Sequence[int], what: str, remedy: str) -> None:
    """Warn if the right choices of all rows seem to be counted from 1: none of many is the first.

    Args:
        numbers: Number of the right choice of each row; `None` where there is none.
        sizes: How many there are to choose from in each row.
        remedy: What to do if they count from 1.

    Warns:
        UserWarning: This would happen by chance in less than `UNLIKELY` of all cases.
    """
    chance = math.prod(1 - 1 / max(1, size) for size in sizes)
    if {0, None}.isdisjoint(numbers) and len({*numbers}) > 1 and chance < UNLIKELY:
        warnings.warn(
            f"{what} is to count choices from 0, but none of {len(numbers):,} rows has 0: if it counts from "
            f"1, {remedy}",
            stacklevel=2,
        )


def plain(name: str) -> str:
    r"""Return a name without white space at its ends, with single spaces within, and as one that looks alike.

    Tables from some systems have an accent behind its letter (Unicode's NFD, made NFC here), or characters
    without width: marks of direction, of byte order, of where a line may break.

    >>> plain("very\t good\u00a0")
    'very good'
    """
    return unicodedata.normalize("NFC", " ".join(name.translate(WITHOUT_WIDTH).split()))


def number_of(value: Any) -> int | float | None:
    """Return the number that a value is, or that a text writes; `None` if it is none.

    >>> [number_of(value) for value in (1, " -2", "19.90", "007", "NA", True, float("nan"))]
    [1, -2, 19.9, None, None, None, None]
    """
    if isinstance(value, str):
        text = value.strip()
        return int(text) if WHOLE.fullmatch(text) else float(text) if NUMBER.fullmatch(text) else None
    return value if is_number(value) else None


def is_number(value: Any) -> bool:
    """Return whether a value is a number: no truth, and neither infinite nor undefined."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def text_of(value: Any) -> Any:
    """Write a number as a text, a whole one without a fraction whatever its column has; nothing else.

    >>> text_of(1), text_of(1.0), text_of(2.5), text_of("1.0"), text_of(True)
    ('1', '1', '2.5', '1.0', True)
    """
    if not is_number(value):
        return value
    return str(int(value) if abs(value) < 2**53 and value == int(value) else value)


KINDS: dict[type, str] = {
    bool: "truth values",
    int: "numbers",
    float: "numbers",
    str: "texts",
    list: "lists",
    dict: "objects",
}
"""What values of a type are called."""


def as_rows(columns: Mapping[str, Sequence[Any]], kinds: pyarrow.Schema | None = None) -> Dataset:
    """Make a data set of columns, which hold the same number of values, of `kinds` if these are known.

    Raises:
        RowError: A value is of another kind than those before it, or fits into no column.
    """
    if kinds is not None:
        arrays = [pyarrow.array(values, kinds.field(name).type) for name, values in columns.items()]
        return Dataset(pyarrow.Table.from_arrays(arrays, schema=kinds))
    return Dataset(pyarrow.table({name: as_array(name, values) for name, values in columns.items()}))


def as_array(column: str, values: Sequence[Any]) -> pyarrow.Array | pyarrow.ChunkedArray:
    """Make an array of the values of a column."""
    try:
        array = pyarrow.array(values)
    except UnicodeError as error:
        bad = ((row, problem_of_values({column: value}, [column])) for row, value in enumerate(values))
        row, problem = next((row, problem) for row, problem in bad if problem)
        raise RowError(row, f"is bad: {problem}: correct it", problem) from error
    except (pyarrow.ArrowException, OverflowError) as error:
        raise odd_value(column, values, error) from error
    has_numbers = pyarrow.types.is_integer(array.type) or pyarrow.types.is_floating(array.type)
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
    """Find the first value that does not go with those before it, and return the error."""
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
        pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError, UnicodeError):
        return False
    return True
