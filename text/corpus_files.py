"""One file of a corpus: its records, whatever its format and compression, each with its location.

    .txt           the lines between two blank ones are a record
    .jsonl         a line is a record
    .csv .tsv      a row is a record, and may go on over lines within quotes (RFC 4180)
    .parquet       a row is a record

A bad record does not end the reading of its file: bytes that are not UTF-8 become surrogates (PEP 383), which
no text holds. What is compressed is read as a stream, and Arrow notices where it breaks off. No line is read
beyond the most characters that a record may have: a small compressed file may hold one of any length.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedReader, TextIOWrapper
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow
from pyarrow.parquet import ParquetFile

from .bad_records import DamageError, Limit, Record, foreign_character, listed
from .delimiters import delimiter_of
from .tables import table_rows

Row = dict[str, Any]
"""Contents of a row by the names of the columns."""

Numbered = tuple[int, Row | str]
"""The line or row at which a record begins or is bad, and its contents or what is wrong."""

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
"""Ending of a compressed file -> Arrow's name for what it is compressed by."""

BYTES_AT_ONCE = 2**20
ROWS_AT_ONCE = 1000


def find_files(path: Path) -> list[Path]:
    """Find a corpus file, or those of a folder and of the folders in it, in the order of their names.

    Links are followed. What has another ending than a corpus file is left out of a folder.

    Raises:
        FileNotFoundError: There is nothing.
        ValueError: A file has an unknown ending or is none, or a folder has no corpus file, holds itself, or
            has a file both packed and unpacked.
    """
    try:
        if path.is_dir():
            if files := list(_files_below(path, ())):
                _require_once(files)
                return files
            raise ValueError(f"folder {path} has no corpus files: their names end in {KNOWN_ENDINGS}")
        if not path.exists():
            raise FileNotFoundError(f"corpus {path} does not exist: check the path, relative to {Path.cwd()}")
    except PermissionError as error:
        raise ValueError(f"{error.filename} cannot be read: check its permissions") from error
    if ending(path) not in READERS:
        raise ValueError(f"corpus {path} has an unknown ending: use {KNOWN_ENDINGS}")
    return [_file(path)]


def _files_below(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    if folder.resolve() in above:
        raise ValueError(f"{folder} is a link to a folder that contains it: remove it, or list the files")
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from _files_below(path, (*above, folder.resolve()))
        elif ending(path) in READERS:
            yield _file(path)


def _require_once(files: Sequence[Path]) -> None:
    """Refuse `base.txt` beside `base.txt.gz`: the same text would count twice."""
    found: dict[Path, Path] = {}
    for file in files:
        unpacked = file.with_suffix("") if file.suffix.lower() in COMPRESSIONS else file
        if (other := found.setdefault(unpacked, file)) is not file:
            raise ValueError(
                f"folder {file.parent} has {other.name} and {file.name}, which by their names are the same "
                f"text: remove one, or list the files to read"
            )


def _file(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"corpus {path} is not a file but a pipe, a device or a broken link: remove it")
    return path


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


def ending(path: Path) -> str:
    """Give the ending of a file's name without its compression, in lower case."""
    name = Path(path.name.lower())
    return Path(name.stem).suffix if name.suffix in COMPRESSIONS else name.suffix


def first_line(error: BaseException | None) -> str:
    """Shorten what an error says to its first line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _rows_of_text(file: Path, columns: Sequence[str], limit: Limit) -> Iterator[Numbered]:
    _require_columns(file, ["text"], columns)
    for has_text, group in groupby(_lines(file, limit), lambda numbered: bool(numbered[1].strip())):
        if has_text:
            yield _document(group, limit)


def _document(numbered: Iterable[tuple[int, str]], limit: Limit) -> Numbered:
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
        problems = map(_problem_of_bytes, lines)
        return next((number, problem) for number, problem in enumerate(problems, first) if problem)
    return first, {"text": text}


def _rows_of_json(file: Path, columns: Sequence[str], limit: Limit) -> Iterator[Numbered]:
    for number, line in _lines(file, limit):
        if len(line) > limit.characters:
            yield number, limit.problem()
        elif line.strip():
            yield number, _problem_of_bytes(line) or _parsed(line)


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
        _, header = next(_lines(file, limit, newline=""), (0, ""))
    yield from _rows_of_table(file, columns, limit, delimiter_of(file, header, columns))


def _rows_of_table(file: Path, columns: Sequence[str], limit: Limit, delimiter: str) -> Iterator[Numbered]:
    # Line ends within quotes are text, so they stay what they are.
    rows = table_rows(_lines(file, limit, newline=""), delimiter, limit)
    number, names = next(rows, (0, list(columns)))
    problem = names if isinstance(names, str) else _problem_of_bytes("".join(names))
    if isinstance(names, str) or problem:  # without names, no field means anything
        raise DamageError(number) from ValueError(problem)
    _require_columns(file, names, columns)
    for number, fields in rows:
        if isinstance(fields, str):
            yield number, fields
        else:
            yield number, _problem_of_bytes("".join(fields)) or dict(zip(names, fields, strict=True))


def _rows_of_parquet(file: Path, columns: Sequence[str], limit: Limit) -> Iterator[Numbered]:
    number = 0
    with _seekable(file) as source, _damage_at(lambda: number + 1):
        table = ParquetFile(source, page_checksum_verification=True)
        _require_columns(file, table.schema_arrow.names, columns)
        for batch in table.iter_batches(ROWS_AT_ONCE, columns=list(columns), use_threads=False):
            for scalars in zip(*(batch.column(name) for name in columns), strict=True):
                number += 1
                row = _values(columns, scalars)
                yield number, limit.problem() if _size(row) > limit.characters else row


def _values(columns: Sequence[str], scalars: Sequence[pyarrow.Scalar]) -> Row | str:
    try:
        return {name: scalar.as_py() for name, scalar in zip(columns, scalars, strict=True)}
    except UnicodeDecodeError as error:
        return _not_utf8(error.object[error.start])


def _size(row: Row | str) -> int:
    """Count the characters of a row's texts."""
    return sum(len(value) for value in row.values() if isinstance(value, str)) if isinstance(row, dict) else 0


@contextmanager
def _seekable(file: Path) -> Iterator[BinaryIO]:
    """Open a file whose reader begins at its end; a compressed one, which is read forwards, is unpacked."""
    if file.suffix.lower() not in COMPRESSIONS:
        with file.open("rb") as source:
            yield source
        return
    with tempfile.TemporaryFile() as unpacked:
        with _damage_at(lambda: 1), _unpacked(file) as packed:
            shutil.copyfileobj(packed, unpacked)
        yield unpacked


def _lines(file: Path, limit: Limit, newline: str | None = None) -> Iterator[tuple[int, str]]:
    """Read the lines of a file, numbered from 1; one that is too long is cut where it shows.

    Args:
        file: Compressed or not.
        limit: One character more is read of a line.
        newline: That of `open`.
    """
    number, most = 0, limit.characters + 1
    with _damage_at(lambda: number + 1), _unpacked(file) as source:
        text = TextIOWrapper(source, "utf-8", errors="surrogateescape", newline=newline)
        while line := text.readline(most):
            number += 1
            yield number, line.removeprefix("\ufeff") if number == 1 else line
            while len(line) == most and not line.endswith(("\n", "\r")):  # pass over its rest
                line = text.readline(most)


def _unpacked(file: Path) -> BinaryIO:
    """Open a file for reading its contents forwards."""
    compression = COMPRESSIONS.get(file.suffix.lower())
    if compression is None:
        return file.open("rb", buffering=BYTES_AT_ONCE)
    if file.stat().st_size == 0:
        raise EOFError("it is empty")
    return BufferedReader(pyarrow.input_stream(str(file), compression), BYTES_AT_ONCE)


@contextmanager
def _damage_at(number: Callable[[], int]) -> Iterator[None]:
    """Say at which line or row Arrow, or what unpacks for it, no longer understood a file."""
    try:
        yield
    except (pyarrow.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        if getattr(error, "errno", None) is not None:  # of the machine, not of the file
            raise
        raise DamageError(number()) from error


def _problem_of_bytes(text: str) -> str:
    """Say what in a file's contents is no text."""
    character = foreign_character(text)
    if character == "\0":
        return "a NUL byte is no text (is the file UTF-16, or binary?)"
    return _not_utf8(ord(character) - 0xDC00) if character else ""


def _not_utf8(byte: int) -> str:
    return f"byte 0x{byte:02x} is not UTF-8 (iconv -t utf-8 converts)"


def _require_columns(file: Path, names: Sequence[str], columns: Sequence[str]) -> None:
    for column in columns:
        if names.count(column) != 1:
            if column in names:
                raise ValueError(f"{file} has several columns {column!r}: give all but one another name")
            raise ValueError(f"{file} has no column {column!r}: name one of its columns {listed(names)}")


READERS: dict[str, tuple[str, Callable[[Path, Sequence[str], Limit], Iterator[Numbered]]]] = {
    ".txt": ("line", _rows_of_text),
    ".jsonl": ("line", _rows_of_json),
    ".csv": ("line", _rows_of_csv),
    ".tsv": ("line", partial(_rows_of_table, delimiter="\t")),
    ".parquet": ("row", _rows_of_parquet),
}
"""Ending of a file -> what its records are numbered by, and their reader."""

KNOWN_ENDINGS = f"{', '.join(READERS)} (each also with {' or '.join(COMPRESSIONS)})"
