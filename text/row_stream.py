"""Rows that are read as they are needed, from a file of any size or from standard input."""

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TextIO

from datasets import IterableDataset

from .bad_records import RowError, foreign_in
from .row_files import require_columns, stream_file
from .rows import Row

STANDARD = "-"
"""What stands for standard input or output."""


def stream_rows(source: str, columns: Sequence[str]) -> IterableDataset:
    """Read a file's rows one after another.

    Args:
        source: A file as `read_file` reads them, or `-` for lines of JSON on standard input.
        columns: Those that every row must have.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is of no known kind, or has no such column.
    """
    if source == STANDARD:
        return IterableDataset.from_generator(lines_of_json, gen_kwargs={"columns": tuple(columns)})
    for first in islice(stream_file(source, columns), 1):
        require_columns(source, list(first), columns)
    return IterableDataset.from_generator(
        rows_of_file, gen_kwargs={"source": source, "columns": tuple(columns)}
    )


def rows_of_file(source: str, columns: Sequence[str]) -> Iterator[Row]:
    """Read the rows of a file, with `None` in a column that one lacks."""
    for row in stream_file(source, columns):
        yield {column: row.get(column) for column in columns}


def lines_of_json(columns: Sequence[str], file: TextIO = sys.stdin) -> Iterator[Row]:
    """Read lines of JSON, as they come; a byte order mark and blank lines are no rows.

    Raises:
        RowError: A line is no object with these columns.
    """
    example = json.dumps(dict.fromkeys(columns, "..."))
    for number, line in enumerate(file):
        line = line.removeprefix("\ufeff") if number == 0 else line
        if not line.strip():
            continue
        try:
            parsed = json.loads(line)
            row = {column: parsed[column] for column in columns}
        except (ValueError, KeyError, TypeError):
            raise RowError(
                number, f"is {line.strip()!r:.60}: write a JSON object in each line, such as {example}"
            ) from None
        if problem := foreign_in(row, columns):
            raise RowError(number, f"is bad: {problem}: correct it")
        yield row
