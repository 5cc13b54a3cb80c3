"""One file of a corpus: its records, whatever its format and compression, each with its location.

    .txt .text     the lines between two blank ones are a record
    .md            the whole file is a record: blank lines divide the paragraphs of Markdown, not documents
    .jsonl         a line is a record
    .json          an item of the list is a record, or a line where there is no list
    .csv .tsv      a row is a record, and may go on over lines within quotes (RFC 4180)
    .parquet       a row is a record

A bad record does not end the reading of its file.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path

from .bad_records import DamageError, Limit, Record, foreign_character, listed
from .delimiters import delimiter_of
from .json_arrays import items_of
from .packed_files import COMPRESSIONS, damage_at, ending, first_line, lines_of, problem_of_bytes, text_of
from .parquet_rows import Row, rows_of_parquet
from .tables import table_rows

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
    _require_columns(file, ["text"], columns)
    for has_text, group in groupby(lines_of(file, limit), lambda numbered: bool(numbered[1].strip())):
        if has_text:
            yield _document(group, file, limit)


def _whole_text(file: Path, columns: Sequence[str], limit: Limit) -> Iterator[Numbered]:
    _require_columns(file, ["text"], columns)
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
        row = json.loads(line)
    except json.JSONDecodeError as error:
        return f"not valid JSON ({error.msg}, character {error.pos + 1})"
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        return f"not valid JSON ({first_line(error)})"
    return row if isinstance(row, dict) else f"not keys with values but {type(row).__name__}"


def _rows_of_csv(file: Path, columns: Sequence[str], limit: Limit) -> Iterator[Numbered]:
    header = ""
    with suppress(DamageError):  # which is told of below
        _, header = next(lines_of(file, limit, newline=""), (0, ""))
    yield from _rows_of_table(file, columns, limit, delimiter_of(file, header, columns))


def _rows_of_table(file: Path, columns: Sequence[str], limit: Limit, delimiter: str) -> Iterator[Numbered]:
    # Line ends within quotes are text, so they stay what they are.
    rows = table_rows(lines_of(file, limit, newline=""), delimiter, limit)
    number, names = next(rows, (0, list(columns)))
    problem = names if isinstance(names, str) else problem_of_bytes("".join(names), file)
    if isinstance(names, str) or problem:  # without names, no field means anything
        raise DamageError(number) from ValueError(problem)
    _require_columns(file, names, columns)
    for number, fields in rows:
        if isinstance(fields, str):
            yield number, fields
        else:
            yield number, problem_of_bytes("".join(fields), file) or dict(zip(names, fields, strict=True))


def _require_columns(file: Path, names: Sequence[str], columns: Sequence[str]) -> None:
    for column in columns:
        if names.count(column) != 1:
            if column in names:
                raise ValueError(f"{file} has several columns {column!r}: give all but one another name")
            raise ValueError(f"{file} has no column {column!r}: name one of its columns {listed(names)}")


READERS: dict[str, tuple[str, Callable[[Path, Sequence[str], Limit], Iterator[Numbered]]]] = {
    ".txt": ("line", _rows_of_text),
    ".text": ("line", _rows_of_text),
    ".md": ("line", _whole_text),
    ".jsonl": ("line", _rows_of_json),
    ".json": ("line", _rows_of_list),
    ".csv": ("line", _rows_of_csv),
    ".tsv": ("line", partial(_rows_of_table, delimiter="\t")),
    ".parquet": ("row", partial(rows_of_parquet, require=_require_columns)),
}
"""Ending of a file -> what its records are numbered by, and their reader."""

KNOWN_ENDINGS = f"{', '.join(READERS)} (each also with {' or '.join(COMPRESSIONS)})"
