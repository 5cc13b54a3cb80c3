"""The records of a file, documents and labelled rows alike, whatever its format and compression.

    .txt .text     the lines between two blank ones are a record
    .md            the whole file is a record: blank lines divide the paragraphs of Markdown, not documents
    .jsonl         a line is a record
    .json          an item of the list is a record, or a line where there is no list
    .csv .tsv      a row is a record, and may go on over lines within quotes (RFC 4180)
    .parquet       a row is a record

A bad record does not end the reading of its file, and no more of a record is held than it may have. An item
of a list ends at a comma between the outermost brackets; what it says is not looked at, so that one that is
no JSON costs no other.
"""

import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO

from ...configs.by_kind import ByKind
from ...configs.messages import first_line
from ...configs.model_paths import nearest
from .compressed_files import COMPRESSIONS, damage_at, ending, lines_of, problem_of_bytes, text_of
from .problems import TEXT_REMEDY, DamageError, Limit, Place, Problem, Record, Row, foreign_character, listed

AT_ONCE = 2**16
"""Characters that are read at once."""

STRUCTURE, TEXT = re.compile(r'["\[\]{},]'), re.compile(r'["\\]')
"""What matters outside of texts, and within one."""


def items_of(text: TextIO, limit: Limit, line: int = 1) -> Iterator[tuple[int, str]]:
    """Cut an array into its items, each with the line on which it begins.

    Args:
        limit: One character more is given of an item that is too long.

    Raises:
        DamageError: The array does not end, or something follows it.
    """
    item, depth, is_text = _Item(limit, line), 1, False
    while portion := _portion(text):
        start = place = 0
        while depth and (match := (TEXT if is_text else STRUCTURE).search(portion, place)):
            sign, place = match[0], match.end()
            if sign == "\\":
                place += 1
            elif sign == '"':
                is_text = not is_text
            elif sign != ",":
                depth += 1 if sign in "[{" else -1
            if not depth or (sign == "," and depth == 1 and not is_text):
                item.add(portion[start : place - 1])
                if depth or item.text.strip():
                    yield item.line, item.text
                item, start = _Item(limit, item.last_line), place
        item.add(portion[start:])
        if not depth and item.text.strip():
            raise DamageError(item.line) from ValueError("something follows the end of the list")
    if depth:
        raise DamageError(item.line) from ValueError("the list does not end")


def _portion(text: TextIO) -> str:
    # It does not end amid an escaped character.
    portion = text.read(AT_ONCE)
    while portion.endswith("\\") and (more := text.read(1)):
        portion += more
    return portion


class _Item:
    # An item as far as it is read.
    def __init__(self, limit: Limit, line: int):
        self.room = limit.characters + 1
        self.first_line = self.last_line = line
        self.pieces: list[str] = []

    def add(self, piece: str) -> None:
        self.last_line += piece.count("\n")
        self.pieces.append(piece[: self.room])
        self.room -= len(self.pieces[-1])

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def line(self) -> int:
        text = self.text
        return self.first_line + text.count("\n", 0, len(text) - len(text.lstrip()))


Numbered = tuple[int, Row | str]
"""The line or row at which a record begins or is bad, and its contents or what is wrong."""


def read(
    file: Path, columns: Sequence[str], limit: Limit | None = None, reader: "Reader | None" = None
) -> Iterator[Record]:
    """Read the records of a file, each with its place; in place of a bad one stands its problem.

    Reading goes on behind a bad record, unless the file is damaged from there on.

    Args:
        reader: Reads its records; that of its ending if left out.

    Raises:
        ValueError: The file cannot be opened, or has no such columns.
    """
    is_lined, row = has_lines(file), 0
    numbered = (reader or READERS[ending(file)])(file, columns, limit or Limit())
    try:
        for row, (number, found) in enumerate(numbered, 1):
            place = Place(file, row, number if is_lined else None)
            yield place, Problem(found) if isinstance(found, str) else found
    except DamageError as damage:
        place = Place(file, row + 1, damage.number if is_lined else None)
        yield place, Problem(f"cannot be read from here on ({first_line(damage.__cause__)})", is_end=True)
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}): check its permissions") from error


def _rows_of_text(file: Path, columns: Sequence[str], limit: Limit) -> Iterator[Numbered]:
    require_columns(file, ["text"], columns)
    for has_text, group in groupby(lines_of(file, limit), lambda numbered: bool(numbered[1].strip())):
        if has_text:
            yield _document(group, file, limit)


def _whole_text(file: Path, columns: Sequence[str], limit: Limit) -> Iterator[Numbered]:
    require_columns(file, ["text"], columns)
    yield _document(lines_of(file, limit), file, limit)


def _document(numbered: Iterable[tuple[int, str]], file: Path, limit: Limit) -> Numbered:
    lines: list[str] = []
    first = size = 0
    for number, line in numbered:
        first, size = first or number, size + len(line)
        if size > limit.characters:
            return first, limit.problem()
        lines.append(line)
    text = "".join(lines)
    if foreign_character(text):
        problems = (problem_of_bytes(line, file) for line in lines)
        return next((number, problem) for number, problem in enumerate(problems, first) if problem)
    return first, {"text": text}


def _rows_of_json(file: Path, columns: Sequence[str], limit: Limit) -> Iterator[Numbered]:
    for number, line in lines_of(file, limit):
        if len(line) > limit.characters:
            yield number, limit.problem()
        elif line.strip():
            yield number, problem_of_bytes(line, file) or _parsed(line)


def _rows_of_list(file: Path, columns: Sequence[str], limit: Limit) -> Iterator[Numbered]:
    # Or objects on lines of their own.
    line = 1
    with damage_at(lambda: line), text_of(file) as text:
        while (sign := text.read(1)).isspace():
            line += sign == "\n"
        if sign != "[":
            yield from _rows_of_json(file, columns, limit)
            return
        for line, item in items_of(text, limit, line):  # noqa: B020
            too_long = limit.problem() if len(item) > limit.characters else ""
            yield line, too_long or problem_of_bytes(item, file) or _parsed(item)


def _parsed(line: str) -> Row | str:
    try:
        row = json.loads(line, object_pairs_hook=object_of)
    except json.JSONDecodeError as error:
        return f"not valid JSON ({error.msg}, character {error.pos + 1})"
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        return f"not valid JSON ({first_line(error)})"
    return row if isinstance(row, dict) else f"not keys with values but {type(row).__name__}"


def read_lines_of_json(lines: Iterable[str], source: str) -> Iterator[Record]:
    """Read lines of JSON as they come, as on standard input; a byte order mark is no part of them."""
    row = 0
    for number, line in enumerate(lines, 1):
        if text := (line.removeprefix("\ufeff") if number == 1 else line).strip():
            row, found = row + 1, _parsed(text)
            yield Place(source, row, number), Problem(found) if isinstance(found, str) else found


def object_of(pairs: list[tuple[str, Any]]) -> Row:
    """Make an object of JSON of its keys and values, or raise a `ValueError` if a key is there twice."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there several times")
    return row


PARQUET = ".parquet"
"""Ending of the files that have no lines."""

Reader = Callable[[Path, Sequence[str], Limit], Iterator[Numbered]]
"""Reads some columns of a file; no text of a record may be longer than a limit."""

READERS: Mapping[str, Reader] = ByKind(
    __name__,
    {
        ".txt": "reading._rows_of_text",
        ".text": "reading._rows_of_text",
        ".md": "reading._whole_text",
        ".jsonl": "reading._rows_of_json",
        ".json": "reading._rows_of_list",
        ".csv": "tables.rows_of_csv",
        ".tsv": "tables.rows_of_tsv",
        PARQUET: "parquet_files.rows_of_parquet",
    },
)
"""Ending of a file -> the reader of its records."""

KNOWN_ENDINGS = f"{', '.join(READERS)} (each also with {' or '.join(COMPRESSIONS)})"


TEXT_LINES = (".txt", ".text")
"""Endings of the files whose lines are texts, for what reads no columns."""

TABLES = (".csv", ".tsv")
"""Endings of those in which everything is written as text."""

ROWS = (".jsonl", ".json", *TABLES, PARQUET)
"""Endings of the files that have rows with columns."""

ENDINGS = f"{', '.join(ROWS)}, perhaps with {' or '.join(COMPRESSIONS)}"
"""How the name of a file of rows ends."""

BY_LINES = (*TEXT_LINES, ".md", ".jsonl")
"""Endings of texts that are read line by line."""

BEGINNING = Limit(100_000)
"""How much of a text is looked at before it is read."""

SMALL = 2**22
"""Bytes of a file that is read in a moment, and may be read twice."""

MOST_ROWS = 10_000
"""Rows among which a column is looked for before all rows are read."""


def find_file(source: str, *, others: Sequence[str] = ()) -> Path:
    """Find a file by what a recipe or command calls it; `others` are endings beside those of rows."""
    path = Path(source).expanduser()
    endings = ", ".join((*others, ENDINGS))
    if not path.is_file():
        what, remedy = "is no file", f"name one that ends in {endings}"
        if not path.exists():
            what, remedy = "does not exist", nearest(path, Path.is_file, remedy)
        if "://" in source:
            what, remedy = "lies elsewhere", "download it, and name the file"
        raise FileNotFoundError(f"{source} {what}: {remedy}")
    if ending(path) not in (*others, *ROWS):
        raise ValueError(f"{source} ends in {path.suffix or 'nothing'}: rows are read from {endings}")
    return path


def has_lines(path: Path) -> bool:
    """Return whether a file has lines, by which its records are found."""
    return ending(path) != PARQUET


class MissingColumnError(ValueError):
    """A source has other columns than the one that is read."""

    def __init__(self, source: str | Path, column: str, names: Sequence[str]):
        super().__init__(source, column, names)
        self.column = column
        self.lack = f"{source} has no column {column!r}"
        self.columns = f"one of its columns {listed(names)}"
        self.message = f"{self.lack}: give {self.columns} this name"

    def __str__(self) -> str:
        return self.message


@contextmanager
def naming_keys(keys: Mapping[str, str]) -> Iterator[None]:
    """Let errors about a missing column name its key of a recipe, or its option, in `keys`."""
    try:
        yield
    except MissingColumnError as error:
        if key := keys.get(error.column):
            error.message = f"{error.lack}: name {error.columns} in {key}"
        raise


def require_columns(source: str | Path, names: Sequence[str], columns: Sequence[str]) -> None:
    """Raise a `ValueError` unless all `columns` are among the `names`, once."""
    for column in columns:
        if column not in names:
            raise MissingColumnError(source, column, names)
        if names.count(column) > 1:
            raise ValueError(f"{source} has several columns {column!r}: give all but one another name")


def require_text_early(file: Path) -> None:
    """Refuse a file of text that begins with a bad record, before all is read; tables come later."""
    if ending(file) in BY_LINES:
        for place, row in read(file, (), BEGINNING):
            if isinstance(row, Problem) and row.what != BEGINNING.problem():
                raise ValueError(f"{place}: {row.what}: {TEXT_REMEDY}")
            return


def require_columns_early(source: str, columns: Sequence[str]) -> None:
    """Refuse a file without the columns before its rows are read, as far as this is known in a moment.

    A small file of lines is read to its end, others until all columns were seen, for `MOST_ROWS` at most.
    Bad rows are left to `read_rows`, which knows whether they are left out.
    """
    path = find_file(source)
    if not path.stat().st_size:
        raise ValueError(f"{source} is empty: name a file of rows")
    if ending(path) not in READERS:
        return
    names: dict[str, None] = {}
    is_small, has_bad_rows = has_lines(path) and path.stat().st_size <= SMALL, False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those who read the rows warn
        for place, row in read(path, columns):
            if not isinstance(row, Problem):
                names |= dict.fromkeys(row)
            elif row.is_end:
                raise ValueError(f"{place}: {row.what}: correct it")
            else:
                has_bad_rows = True
            if not is_small and (has_bad_rows or place.row > MOST_ROWS or names.keys() >= set(columns)):
                return
    if names and not has_bad_rows:
        require_columns(source, list(names), columns)
