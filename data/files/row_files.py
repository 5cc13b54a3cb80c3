"""Files of labelled rows, read whole or row by row.

    .jsonl .csv .tsv    as corpora are: what is wrong with a line is said with its number
    .json               the same: a list of objects, or lines of them
    .parquet            with the names of its labels; row by row, it is as corpora are
    .gz .zst            any of these, compressed: train.csv.gz

The cells of a table are the texts that stand there: nothing stands for a missing value, and `NA`, `007` and
`19.90` are texts like all others. What needs a number makes it of the text (`number_of`).
A column of a data set has values of one kind, and the row whose value is of another is named.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow
from datasets import Dataset

from ...configs.messages import first_line
from .bad_records import DamageError, RowError, foreign_in, reason_of
from .bad_rows import Places, RowTally
from .compressed_files import most_bytes, seekable
from .parquet_rows import parquet_rows
from .record_files import find_file, has_lines, records_of_file, require_columns

WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})", re.ASCII)
"""A whole number; it fits into 64 bits."""

NUMBER = re.compile(r"-?((0|[1-9]\d{0,14})(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""Any number, but none that a float would round to another whole one."""


def read_file(source: str, columns: Sequence[str]) -> Dataset:
    """Read some columns of a file; a row that lacks one has `None` there.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is of no known kind or damaged, lacks a column, or a row's value is of
            another kind than the others'.
    """
    if has_lines(find_file(source)):
        written = read_lines(source, columns)
        try:
            return as_rows(written.values)
        except RowError as error:
            raise written.places.refusal(error) from error
    return read_parquet(source, columns)


def read_parquet(source: str, columns: Sequence[str]) -> Dataset:
    """Read some columns of a parquet file, with the names of their labels.

    Raises:
        ValueError: It cannot be read, lacks a column, or holds more than a file of its size may.
    """
    try:
        path = find_file(source)
        with seekable(path) as file:
            rows = parquet_rows(file, columns, source, most_bytes(path))
        rows.validate(full=True)
        return Dataset(rows)
    except (pyarrow.ArrowException, OSError, DamageError) as error:
        cause = first_line(error.__cause__ or error)
        raise ValueError(f"{source} cannot be read as parquet ({cause}): repair it") from error


WITHOUT_WIDTH = dict.fromkeys(map(ord, "\u00ad\u200b\u200e\u200f\u2060\ufeff"))
"""Characters that no name is told by; those that join letters are not among them."""


class Written(NamedTuple):
    """What is written in a file of lines."""

    values: dict[str, list[Any]]
    """Of each column; `None` where a row has none."""
    places: Places
    """Of the rows."""


def read_lines(
    source: str, columns: Sequence[str], *, remedy: str = "", tally: RowTally | None = None
) -> Written:
    """Read some columns of a file that has a row on each line.

    Args:
        source: The file.
        columns: Needed ones.
        remedy: What else to do about a bad line than to correct it, for the error.
        tally: Counts bad lines, which are left out; without it, the first one is an error.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is of no known kind, breaks off or lacks a column, or a line cannot be read.
    """
    values: dict[str, list[Any]] = {column: [] for column in columns}
    names: dict[str, None] = {}
    numbers, lines = [], []
    for number, record in enumerate(records_of_file(find_file(source), columns)):
        if problem := record.problem or foreign_in(record.row, columns):
            if tally is None or record.is_end:
                raise ValueError(f"{record.location}: {problem}: correct it{'' if record.is_end else remedy}")
            tally.count(tally.left_out, record.location, reason_of(problem))
            continue
        names |= dict.fromkeys(record.row)
        for column in columns:
            values[column].append(record.row.get(column))
        numbers.append(number)
        lines.append(record.number)
    if names:
        require_columns(source, list(names), columns)
    return Written(values, Places(source, np.array(numbers, np.int64), np.array(lines, np.int64)))


def stream_file(source: str, columns: Sequence[str], *, whole: bool = False) -> Iterator[dict[str, Any]]:
    """Read the rows of a file one after another; those of a table hold texts only.

    Args:
        source: The file.
        columns: Needed ones.
        whole: Whether parquet's rows have their other columns, too, as those of other files do.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is of no known kind or damaged, or is a table that lacks a column.
    """
    path = find_file(source)
    for record in records_of_file(path, () if whole and not has_lines(path) else columns):
        if problem := record.problem or foreign_in(record.row, list(record.row) if whole else columns):
            raise ValueError(f"{record.location}: {problem}: correct it")
        yield record.row


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


def as_rows(columns: Mapping[str, Sequence[Any]]) -> Dataset:
    """Make a data set of columns, which hold the same number of values.

    Raises:
        RowError: A value is of another kind than those before it, or fits into no column.
    """
    return Dataset(pyarrow.table({name: as_array(name, values) for name, values in columns.items()}))


def as_array(column: str, values: Sequence[Any]) -> pyarrow.Array | pyarrow.ChunkedArray:
    """Make an array of the values of a column.

    Raises:
        RowError: A value is of another kind than those before it, or fits into no column.
    """
    try:
        array = pyarrow.array(values)
    except UnicodeError as error:
        bad = ((row, foreign_in({column: value}, [column])) for row, value in enumerate(values))
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
        pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError, UnicodeError):
        return False
    return True
