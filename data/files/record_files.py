"""Files of records, corpora and labelled rows alike, whatever their format and compression.

    .txt .text     the lines between two blank ones are a record
    .md            the whole file is a record: blank lines divide the paragraphs of Markdown, not documents
    .jsonl         a line is a record
    .json          an item of the list is a record, or a line where there is no list
    .csv .tsv      a row is a record, and may go on over lines within quotes (RFC 4180)
    .parquet       a row is a record

A bad record does not end the reading of its file, and no more of a record is held than it may have. An item
of a list ends at a comma between the outermost brackets; what it says is not looked at, so that one that is
no JSON costs no other. A parquet file of some kilobytes may name one text of megabytes a million times, as an
entry of a dictionary: entries of small groups of rows are read as such, once; of a large group with
dictionaries, one row is read at a time. A page of the file is decompressed as a whole, so that memory is
bounded by the largest record and the file's largest page and dictionary, whatever the number of rows.
"""

import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO

import pyarrow
from pyarrow.parquet import ParquetFile, RowGroupMetaData

from ...configs.messages import first_line
from ...configs.paths import nearest
from .bad_records import DamageError, Limit, Record, foreign_character, listed, refusal
from .compressed_files import (
    COMPRESSIONS,
    damage_at,
    ending,
    lines_of,
    problem_of_bytes,
    seekable,
    text_of,
)
from .tables import delimiter_of, table_rows

AT_ONCE = 2**16
"""Characters that are read at once."""

STRUCTURE, TEXT = re.compile(r'["\[\]{},]'), re.compile(r'["\\]')
"""What matters outside of texts, and within one."""


def items_of(text: TextIO, limit: Limit, line: int = 1) -> Iterator[tuple[int, str]]:
    """Cut an array into its items, each with the line on which it begins.

    Args:
        text: What follows the first bracket.
        limit: One character more is given of an item that is too long.
        line: On which the first bracket stands.

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
    """Read a portion that does not end amid an escaped character."""
    portion = text.read(AT_ONCE)
    while portion.endswith("\\") and (more := text.read(1)):
        portion += more
    return portion


class _Item:
    """An item as far as it is read.

    Args:
        limit: How much of it is kept.
        line: On which what comes before it ends.
    """

    def __init__(self, limit: Limit, line: int):
        self.room = limit.characters + 1
        self.first_line = self.last_line = line
        self.pieces: list[str] = []

    def add(self, piece: str) -> None:
        """Append what was read."""
        self.last_line += piece.count("\n")
        self.pieces.append(piece[: self.room])
        self.room -= len(self.pieces[-1])

    @property
    def text(self) -> str:
        """What is kept of it."""
        return "".join(self.pieces)

    @property
    def line(self) -> int:
        """The line on which it begins."""
        text = self.text
        return self.first_line + text.count("\n", 0, len(text) - len(text.lstrip()))


Row = dict[str, Any]

BYTES_AT_ONCE = 2**24
"""Bytes of some rows that are read together, about; but for a single one that has more."""

ROWS_AT_ONCE = 1000


def is_text(kind: pyarrow.DataType) -> bool:
    """Return whether a column holds texts."""
    return pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)


def rows_of_parquet(
    file: Path,
    columns: Sequence[str],
    limit: Limit,
) -> Iterator[tuple[int, Row | str]]:
    """Read some columns of a parquet file, with the numbers of the rows, from 1; a bad row is a sentence.

    Args:
        file: Perhaps compressed once more.
        columns: To be read; all, if none is named.
        limit: Of a row's texts.

    Raises:
        DamageError: The file is none of its kind from some row on.
        ValueError: It lacks a column.
    """
    number = 0
    with seekable(file) as source, damage_at(lambda: number + 1):
        plain = ParquetFile(source, page_checksum_verification=True)
        require_columns(file, plain.schema_arrow.names, columns)
        columns = columns or plain.schema_arrow.names
        texts = [name for name in columns if is_text(plain.schema_arrow.field(name).type)]
        entries = ParquetFile(source, page_checksum_verification=True, read_dictionary=texts)
        for group in range(plain.num_row_groups):
            about = plain.metadata.row_group(group)
            is_small = about.total_byte_size <= BYTES_AT_ONCE
            rows = ROWS_AT_ONCE if is_small else rows_at_once(about)
            reader = entries if is_small else plain
            for batch in reader.iter_batches(rows, [group], columns=list(columns), use_threads=False):
                for scalars in zip(*(batch.column(name) for name in columns), strict=True):
                    number += 1
                    yield number, _row(columns, scalars, limit)


def rows_at_once(about: RowGroupMetaData) -> int:
    """Compute how many rows of a large group may be read together; one where each may have any length.

    The entries that a reader of dictionaries has met are kept up to the end of a group, so that it serves
    small ones alone.
    """
    if any(about.column(number).has_dictionary_page for number in range(about.num_columns)):
        return 1
    return max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE * about.num_rows // about.total_byte_size))


def _row(columns: Sequence[str], scalars: Sequence[pyarrow.Scalar], limit: Limit) -> Row | str:
    values = [each.value if isinstance(each, pyarrow.DictionaryScalar) else each for each in scalars]
    size = sum(len(each.as_buffer()) for each in values if each.is_valid and is_text(each.type))
    if size > 4 * limit.characters:  # UTF-8 has four bytes a character at most
        return limit.problem()
    try:
        row = {name: each.as_py() for name, each in zip(columns, values, strict=True)}
    except UnicodeDecodeError as error:
        return f"byte 0x{error.object[error.start]:02x} is not UTF-8: write the texts of the column as UTF-8"
    size = sum(len(value) for value in row.values() if isinstance(value, str))
    return limit.problem() if size > limit.characters else row


Numbered = tuple[int, Row | str]
"""The line or row at which a record begins or is bad, and its contents or what is wrong."""


def records_of_file(file: Path, columns: Sequence[str], limit: Limit | None = None) -> Iterator[Record]:
    """Read the records of a file; one that is damaged ends with a bad record.

    Args:
        file: Its ending says what it is.
        columns: Those that are needed.
        limit: How long a record may be.

    Raises:
        ValueError: The file cannot be opened, or has no such columns.
    """
    unit, read = READERS[ending(file)]
    try:
        for number, row in read(file, columns, limit or Limit()):
            location = f"{file}, {unit} {number}"
            contents, problem = ({}, row) if isinstance(row, str) else (row, "")
            yield Record(location, contents, problem, number)
    except DamageError as damage:
        problem = f"cannot be read from here on ({first_line(damage.__cause__)})"
        yield Record(f"{file}, {unit} {damage.number}", {}, problem, damage.number, is_end=True)
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
    """Join the lines of a document."""
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
    """Read the items of a list of objects, or objects on lines of their own."""
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


def object_of(pairs: list[tuple[str, Any]]) -> Row:
    """Make an object of JSON of its keys and values, or raise a `ValueError` if a key is there twice."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there several times")
    return row


def _rows_of_csv(file: Path, columns: Sequence[str], limit: Limit) -> Iterator[Numbered]:
    header = ""
    with suppress(DamageError):  # which a message below names
        _, header = next(lines_of(file, limit, newline=""), (0, ""))
    yield from _rows_of_table(file, columns, limit, delimiter_of(file, header, columns))


def _rows_of_table(file: Path, columns: Sequence[str], limit: Limit, delimiter: str) -> Iterator[Numbered]:
    # Line ends within quotes are text, so they stay what they are.
    rows = table_rows(file, lines_of(file, limit, newline=""), delimiter, limit)
    number, names = next(rows, (0, list(columns)))
    problem = names if isinstance(names, str) else problem_of_bytes("".join(names), file)
    if isinstance(names, str) or problem:  # without names, no field means anything
        raise DamageError(number) from ValueError(problem)
    require_columns(file, names, columns or [name for name in names if name])  # where none is named, all are
    for number, fields in rows:
        if isinstance(fields, str):
            yield number, fields
        else:
            yield number, problem_of_bytes("".join(fields), file) or dict(zip(names, fields, strict=True))


READERS: dict[str, tuple[str, Callable[[Path, Sequence[str], Limit], Iterator[Numbered]]]] = {
    ".txt": ("line", _rows_of_text),
    ".text": ("line", _rows_of_text),
    ".md": ("line", _whole_text),
    ".jsonl": ("line", _rows_of_json),
    ".json": ("line", _rows_of_list),
    ".csv": ("line", _rows_of_csv),
    ".tsv": ("line", partial(_rows_of_table, delimiter="\t")),
    ".parquet": ("row", rows_of_parquet),
}
"""Ending of a file -> what its records are numbered by, and their reader."""

KNOWN_ENDINGS = f"{', '.join(READERS)} (each also with {' or '.join(COMPRESSIONS)})"


TEXT_LINES = (".txt", ".text")
"""Endings of the files whose lines are texts, for what reads no columns."""

LINES = (".jsonl", ".json", ".csv", ".tsv")
"""Endings of the files that have lines or items."""

TABLES = (".csv", ".tsv")
"""Endings of those in which everything is written as text."""

WHOLE_FILES = (".parquet",)
"""Endings of the files that are read whole."""

ENDINGS = f"{', '.join((*LINES, *WHOLE_FILES))}, perhaps with {' or '.join(COMPRESSIONS)}"
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
    """Find a file by what a recipe or command calls it; `others` are endings beside those of rows.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It is of no known kind.
    """
    path = Path(source).expanduser()
    endings = ", ".join((*others, ENDINGS))
    if not path.is_file():
        what, remedy = "is no file", f"name one that ends in {endings}"
        if not path.exists():
            what, remedy = "does not exist", nearest(path, Path.is_file, remedy)
        if "://" in source:
            what, remedy = "lies elsewhere", "download it, and name the file"
        raise FileNotFoundError(f"{source} {what}: {remedy}")
    if ending(path) not in (*others, *LINES, *WHOLE_FILES):
        raise ValueError(f"{source} ends in {path.suffix or 'nothing'}: rows are read from {endings}")
    return path


def has_lines(path: Path) -> bool:
    """Return whether a file is read line by line."""
    return ending(path) in LINES


class MissingColumnError(ValueError):
    """A source has other columns than the one that is read."""

    def __init__(self, source: str | Path, column: str, names: Sequence[str]):
        super().__init__(source, column, names)
        self.column = column
        self.lack = f"{source} has no column {column!r}"
        self.columns = f"one of its columns {listed(names)}"
        self.message = f"{self.lack}: give {self.columns} this name"

    def __str__(self) -> str:
        """Say what there is instead."""
        return self.message


@contextmanager
def naming_keys(keys: Mapping[str, str]) -> Iterator[None]:
    """Let errors about missing columns say which key of a recipe, or which option, names the column.

    Args:
        keys: By the columns.
    """
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
    """Refuse a file of text that begins with a bad record, before all is read; tables come later.

    Raises:
        ValueError: The record is bad.
    """
    if ending(file) in BY_LINES:
        for location, _, problem, *_ in records_of_file(file, (), BEGINNING):
            if problem and problem != BEGINNING.problem():
                raise refusal(location, problem)
            return


def require_columns_early(source: str, columns: Sequence[str]) -> None:
    """Refuse a file without the columns before its rows are read, as far as this is known in a moment.

    A small file of lines is read to its end, others until all columns were seen, for `MOST_ROWS` at most.
    Bad rows are left to `read_rows`, which knows whether they are left out.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is of no known kind, lacks a column, or is damaged.
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
        for number, record in enumerate(records_of_file(path, columns)):
            names |= dict.fromkeys(record.row)
            has_bad_rows |= bool(record.problem)
            if record.is_end:
                raise ValueError(f"{record.location}: {record.problem}: correct it")
            if not is_small and (has_bad_rows or number == MOST_ROWS or names.keys() >= set(columns)):
                return
    if names and not has_bad_rows:
        require_columns(source, list(names), columns)
