"""Rows that are read as they are needed, from a file of any size or from standard input."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO, cast

from datasets import IterableDataset, load_dataset

from .row_error import RowError
from .rows import Row, find_reader

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
        return IterableDataset.from_generator(lines_of_json, gen_kwargs={"columns": list(columns)})
    kind, options = find_reader(source)
    rows = cast(IterableDataset, load_dataset(kind, split="train", streaming=True, **options))
    known = list(next(iter(rows), {}))
    for column in columns:
        if column not in known:
            raise ValueError(
                f"{source} has no column {column!r}, only {', '.join(known)}: rename the right one"
            )
    return rows


def lines_of_json(columns: Sequence[str], file: TextIO = sys.stdin) -> Iterator[Row]:
    """Read lines of JSON, as they come.

    Raises:
        ValueError: A line is no object with these columns.
    """
    for number, line in enumerate(file):
        try:
            row = json.loads(line)
            yield {column: row[column] for column in columns}
        except (ValueError, KeyError, TypeError) as error:
            wanted = ", ".join(columns)
            raise RowError(number, f"is no JSON object with {wanted} ({error!r}): correct it") from None
