"""Rows written into a file, some at a time; its ending says how.

    .jsonl         an object of JSON on each line
    .json          a list of such objects
    .csv .tsv      a table, whose columns are those of the first rows; a list or an object is written as JSON
    .parquet       a table, which is held in memory until the last row is there

What is read of these files (`rows.py`) are the rows that were written, but for the kinds of cells.
"""

import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol, TextIO

import pyarrow
from pyarrow.parquet import write_table

from ...configs.messages import first_line
from .atomic_writes import written_beside

Row = dict[str, Any]

CRLF = "\r\n"

ROWS_AT_ONCE = 1024
"""Rows that are made a part of a table together."""


class RowWriter(Protocol):
    """Writes rows."""

    def write(self, rows: Sequence[Row]) -> None:
        """Append rows."""
        ...

    def close(self) -> None:
        """Write what stands behind the last row."""
        ...


class LineWriter:
    """Lines of JSON, which are there whatever happens next."""

    def __init__(self, file: TextIO):
        self.file = file

    def write(self, rows: Sequence[Row]) -> None:
        self.file.writelines(f"{as_json(row)}\n" for row in rows)
        self.file.flush()

    def close(self) -> None:
        """Nothing stands behind the last row."""


class ListWriter:
    """A list of objects of JSON, each on a line."""

    def __init__(self, file: TextIO):
        self.file, self.before = file, "[\n"

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.file.write(self.before + as_json(row))
            self.before = ",\n"

    def close(self) -> None:
        self.file.write("\n]\n" if self.before == ",\n" else "[]\n")


class TableWriter:
    """A table of text."""

    def __init__(self, file: TextIO, delimiter: str = ","):
        # The module quotes only those ends of lines that it writes itself: both, of which one is taken off.
        lines: Any = SimpleNamespace(write=lambda line: file.write(f"{line.removesuffix(CRLF)}\n"))
        self.writer = csv.writer(lines, delimiter=delimiter, lineterminator=CRLF)
        self.columns: list[str] = []
        self.rows = 0

    def write(self, rows: Sequence[Row]) -> None:
        if not self.columns:
            self.columns = list(dict.fromkeys(name for row in rows for name in row))
            self.writer.writerow(self.columns)
        for row in rows:
            self.rows += 1
            if new := row.keys() - {*self.columns}:
                raise ValueError(
                    f"row {self.rows:,} has a column {min(new)!r}, which the first rows have not: write a "
                    ".jsonl file, whose rows may differ"
                )
            self.writer.writerow([as_cell(row.get(column)) for column in self.columns])

    def close(self) -> None:
        """Nothing stands behind the last row."""


class ParquetWriter:
    """A table of typed columns; without a path, it shows whether rows make one."""

    def __init__(self, path: Path | None = None):
        self.path, self.tables = path, list[pyarrow.Table]()

    def write(self, rows: Sequence[Row]) -> None:
        columns = dict.fromkeys(name for row in rows for name in row)
        with naming_kinds():
            self.tables.append(pyarrow.table({name: [row.get(name) for row in rows] for name in columns}))

    def close(self) -> None:
        with naming_kinds():
            whole = pyarrow.concat_tables(self.tables or [pyarrow.table({})], promote_options="permissive")
            if self.path is not None:
                write_table(whole, self.path)


@contextmanager
def naming_kinds() -> Iterator[None]:
    """Say of a column with values of several kinds what holds it."""
    try:
        yield
    except (pyarrow.ArrowException, OverflowError) as error:
        raise ValueError(
            f"a column has values of several kinds ({first_line(error)}), which .parquet does not hold: "
            "write .jsonl"
        ) from error


def as_json(value: Any) -> str:
    """Write a value as JSON, with texts for dates and bytes, and null for NaN and infinity."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), ensure_ascii=False, default=str)


def finite(value: Any) -> Any:
    """Write `None` for each number in a value that is not finite.

    >>> finite({"a": [1.5, float("nan")]})
    {'a': [1.5, None]}
    """
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [*map(finite, value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_cell(value: Any) -> Any:
    """Write a value as a cell of a table; an empty one for what is not a number (NaN)."""
    return as_json(value) if isinstance(value, list | dict) else None if value != value else value


WRITERS: dict[str, Callable[[Any], RowWriter]] = {
    ".jsonl": LineWriter,
    ".json": ListWriter,
    ".csv": TableWriter,
    ".tsv": lambda file: TableWriter(file, "\t"),
    ".parquet": ParquetWriter,
}
"""By the ending of a file."""


def require_ending(output: str) -> None:
    if Path(output).suffix not in WRITERS:
        raise ValueError(f"--output is {output!r}: end its name in {', '.join(WRITERS)}")


def require_writable(rows: Iterator[Row], output: str) -> None:
    """Refuse an output that cannot hold rows as they are, before anything is computed for them."""
    if Path(output).suffix == ".parquet":
        writer = ParquetWriter()
        while chunk := list(islice(rows, ROWS_AT_ONCE)):
            writer.write(chunk)
        writer.close()


@contextmanager
def writing_rows(path: Path) -> Iterator[RowWriter]:
    """Open a file for rows, which gets its name when it is whole; until then, what was there stays."""
    with written_beside(path) as partial:
        if path.suffix == ".parquet":
            writer = ParquetWriter(partial)
            yield writer
            writer.close()
            return
        with partial.open("w", encoding="utf-8", newline="") as file:
            writer = WRITERS[path.suffix](file)
            yield writer
            writer.close()
