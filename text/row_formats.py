"""The formats of files of rows, and their columns, found without `datasets`, whose import takes a second."""

import warnings
from collections.abc import Sequence
from pathlib import Path

from .bad_records import listed
from .packed_files import COMPRESSIONS, ending
from .record_files import READERS, records_of_file

LINES = (".jsonl", ".json", ".csv", ".tsv")
"""Endings of the files whose lines or items are told apart."""

TABLES = (".csv", ".tsv")
"""Endings of those in which everything is written as text."""

WHOLE_FILES = (".parquet",)
"""Endings of the files that are read whole."""

ENDINGS = f"{', '.join((*LINES, *WHOLE_FILES))}, perhaps with {' or '.join(COMPRESSIONS)}"
"""How the name of a file of rows ends."""

MOST_ROWS = 10_000
"""Rows among which a column is looked for before all rows are read."""


def find_file(source: str) -> Path:
    """Find a file by what a recipe or command calls it.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It is of no known kind.
    """
    path = Path(source).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {source}: name one that ends in {ENDINGS}")
    if ending(path) not in (*LINES, *WHOLE_FILES):
        raise ValueError(f"{source} ends in {path.suffix or 'nothing'}: rows are read from {ENDINGS}")
    return path


def has_lines(path: Path) -> bool:
    """Return whether a file is read line by line."""
    return ending(path) in LINES


def require_columns(source: str, names: Sequence[str], columns: Sequence[str]) -> None:
    """Raise a `ValueError` if one of the columns is not among the names of those that there are."""
    for column in columns:
        if column not in names:
            raise ValueError(f"{source} has no column {column!r}: name one of its columns {listed(names)}")


def require_columns_early(source: str, columns: Sequence[str]) -> None:
    """Refuse a file without the columns before its rows are read, as far as this is known in a moment.

    A table names its columns in its first line. Other files are read until all columns were seen, for
    `MOST_ROWS` at most. What is undecided or cannot be read is left to `read_rows`.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is of no known kind, or lacks a column.
    """
    path = find_file(source)
    if ending(path) not in READERS:
        return
    names: dict[str, None] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those who read the rows warn
        for number, record in enumerate(records_of_file(path, columns)):
            names |= dict.fromkeys(record.row)
            if record.problem or number == MOST_ROWS or names.keys() >= set(columns):
                return
    if names:
        require_columns(source, list(names), columns)
