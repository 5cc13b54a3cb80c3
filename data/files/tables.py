"""Rows of a table in lines (CSV, TSV; RFC 4180). A quote that swallows rows is refused, with its line.

A text within quotes may go on over lines, so that one quote too many makes a single text of all that follows,
up to the next quote or the end of the file. Which rows were meant is a guess then: it is refused. A line with
too few or too many fields is a bad row like others.

Fields are separated by commas, or by the semicolons or tabs that spreadsheets write too: the first line
decides. A file in which commas give the columns that are wanted has commas.
"""

import csv
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from .compressed_files import lines_of, problem_of_bytes
from .problems import DamageError, Limit
from .reading import Numbered, require_columns

MOST_QUOTED = 2**24
"""Characters of a row that goes on over several lines, at most: without it, a quote could fill the memory."""

SEPARATOR_LINE = ["sep=", ""]
"""What a line `sep=;` is, cut at what it names."""

Fields = tuple[int, list[str] | str]
"""The line on which a row begins, and its fields or what is wrong with it."""


def rows_of_csv(file: Path, columns: Sequence[str], limit: Limit) -> Iterator[Numbered]:
    """Read the rows of a table whose delimiter its first line tells."""
    header = ""
    with suppress(DamageError):  # which a message below names
        _, header = next(lines_of(file, limit, newline=""), (0, ""))
    yield from _rows_of_table(file, columns, limit, delimiter_of(file, header, columns))


def rows_of_tsv(file: Path, columns: Sequence[str], limit: Limit) -> Iterator[Numbered]:
    return _rows_of_table(file, columns, limit, "\t")


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


def table_rows(
    file: Path, lines: Iterator[tuple[int, str]], delimiter: str, limit: Limit
) -> Iterator[Fields]:
    """Read the rows; the first, the names, says how many fields each of the others has.

    Spreadsheets leave rows of empty fields around a table, which are no rows, and `sep=;` before it. Between
    two rows, empty fields are a row, and so is a blank line under a single name.

    Args:
        lines: Numbered, with their ends.
    """
    csv.field_size_limit(sys.maxsize)
    row = RowLines(lines, limit)
    reader = csv.reader(row, delimiter=delimiter, strict=True)
    names: list[str] = []
    empty: list[tuple[int, int]] = []
    while True:
        row.begin()
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise row.refusal(file, str(error)) from None
        except TooLongError as error:
            if row.has_quote:
                raise row.refusal(file, str(error)) from None
            yield from between_rows(empty, names)
            yield row.first, str(error)
            continue
        if fields is None:
            return
        if not names and fields == SEPARATOR_LINE:
            continue
        if len(fields) != 1 and not any(fields):
            if names and (fields or len(names) == 1):
                empty.append((row.first, max(1, len(fields))))
            continue
        yield from between_rows(empty, names)
        problem = problem_of_fields(fields, names)
        if not problem and delimiter == "\t" and have_tabs_of_rows(row.lines, len(names)):
            problem = "each has the tabs of a row"
        if problem and len(row.lines) > 1:
            raise row.refusal(file, problem)
        yield row.first, f"not valid CSV ({problem})" if problem else fields
        names = names or fields


def between_rows(empty: list[tuple[int, int]], names: Sequence[str]) -> Iterator[Fields]:
    """Yield the rows of empty fields before another row, of which there were line and number; forget them."""
    for line, number in empty:
        problem = problem_of_fields([""] * number, names)
        yield line, f"not valid CSV ({problem})" if problem else [""] * number
    empty.clear()


def problem_of_fields(fields: Sequence[str], names: Sequence[str]) -> str:
    """Describe why fields do not go with the names of the columns, if those are read already.

    >>> problem_of_fields(["a"], ["text", "label"])
    '1 fields under 2 names'
    """
    if names and len(fields) != len(names):
        return f"{len(fields)} fields under {len(names)} names"
    is_header = len(names) > 1 and fields == names
    return (
        "the names of the columns again: the header of another file that was joined to this one?"
        if is_header
        else ""
    )


class TooLongError(Exception):
    """A line or row has more characters than it may have."""


class RowLines(Iterator[str]):
    """Lines, of which those of the row that is being read are kept."""

    def __init__(self, numbered: Iterator[tuple[int, str]], limit: Limit):
        self.numbered, self.limit = numbered, limit
        self.begin()

    def begin(self) -> None:
        self.first = self.size = 0
        self.lines: list[str] = []

    def __next__(self) -> str:
        number, line = next(self.numbered)
        self.first = self.first or number
        self.lines.append(line)
        self.size += len(line)
        if len(line) > self.limit.characters:
            raise TooLongError(self.limit.problem())
        if len(self.lines) > 1 and self.size > MOST_QUOTED:
            raise TooLongError(f"more than {MOST_QUOTED:,} characters")
        return line

    @property
    def has_quote(self) -> bool:
        """Whether the row may go on behind a line that is too long."""
        return any('"' in line for line in self.lines)

    def refusal(self, file: Path, problem: str) -> ValueError:
        """Refuse a file that a quote makes unreadable from the row's first line on."""
        lines = len(self.lines)
        held = f"a quote holds {lines:,} lines together: " if lines > 1 else ""
        return ValueError(
            f'{file}, line {self.first}: not valid CSV ({held}{problem}): close the quote, write "" for one '
            "within a quoted text, or write a .jsonl file"
        )


def have_tabs_of_rows(lines: Sequence[str], names: int) -> bool:
    r"""Return whether each of several lines has the tabs of a row, as the lines of a text hardly ever have.

    >>> [have_tabs_of_rows(lines, 2) for lines in (['"He\t1', 'said"\t0'], ['"He', 'said"\t0'])]
    [True, False]
    """
    return len(lines) > 1 and names > 1 and all(line.count("\t") == names - 1 for line in lines)


DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
"""What may separate fields -> its name."""


def delimiter_of(file: Path, header: str, columns: Sequence[str]) -> str:
    """Find what separates the fields of a file by its first line, and warn if that is no comma."""
    delimiter = find_delimiter(header, columns)
    if delimiter != ",":
        warnings.warn(f"{file}: its fields are separated by {DELIMITERS[delimiter]}", stacklevel=2)
    return delimiter


def find_delimiter(header: str, columns: Sequence[str]) -> str:
    r"""Return the first delimiter by which a line has all columns, or else the one that makes most fields.

    >>> [find_delimiter(line, ["text"]) for line in ("text,n", "text;n", "text\tn", "n;body", "text")]
    [',', ';', '\t', ';', ',']
    """
    names = {delimiter: names_in(header, delimiter) for delimiter in DELIMITERS}
    fitting = [delimiter for delimiter, found in names.items() if columns and set(columns) <= set(found)]
    return fitting[0] if fitting else max(names, key=lambda delimiter: len(names[delimiter]))


def names_in(header: str, delimiter: str) -> list[str]:
    """Split a line; one that is not valid has no names."""
    try:
        return next(csv.reader([header], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []
