"""Rows of a table in lines (CSV, TSV; RFC 4180): what a stray quote swallows is given back.

A text within quotes may go on over lines, so that one quote too many makes a single text of all that follows,
up to the next quote or the end of the file. Python's `csv` loses those lines. Here a row that turns out to be
none costs the line that it begins on: the lines behind it are read again, each as the beginning of a row. A
text goes on over lines for `MOST_QUOTED` characters at most.

Fields are separated by commas, or by the semicolons or tabs that spreadsheets write too: the first line
decides. A file in which commas give the columns that are wanted has commas.
"""

import csv
import re
import sys
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from .bad_records import DamageError, Limit

MOST_QUOTED = 2**24
"""Characters of a row that goes on over several lines, at most: without it, a quote could fill the memory."""

SEPARATOR_LINE = ["sep=", ""]
"""What a line `sep=;` is, cut at what it names."""

Fields = tuple[int, list[str] | str]
"""The line on which a row begins, and its fields or what is wrong with it."""


def table_rows(lines: Iterator[tuple[int, str]], delimiter: str, limit: Limit) -> Iterator[Fields]:
    """Read the rows; the first, the names, says how many fields each of the others has.

    Spreadsheets leave rows of empty fields around a table, which are no rows, and `sep=;` before it. Between
    two rows, empty fields are a row, and so is a blank line under a single name.

    Args:
        lines: Numbered, with their ends.
        delimiter: What stands between fields.
        limit: How long a line may be; one that is longer is bad.

    Raises:
        DamageError: The lines break off.
    """
    csv.field_size_limit(sys.maxsize)
    ahead = Lookahead(lines, limit)
    reader = csv.reader(ahead, delimiter=delimiter, strict=True)
    names: list[str] = []
    empty: list[tuple[int, int]] = []
    is_behind_bad = False
    while True:
        ahead.keep()
        try:
            fields = next(reader)
        except StopIteration:
            if ahead.damage is not None:
                raise ahead.damage from ahead.damage.__cause__
            return
        except (csv.Error, TooLongError) as error:
            yield from between_rows(empty, names)
            yield ahead.first, str(error) if isinstance(error, TooLongError) else f"not valid CSV ({error})"
            ahead.give_back()
            is_behind_bad = True
            continue
        if not names and fields == SEPARATOR_LINE:
            continue
        if len(fields) != 1 and not any(fields):
            if names and (fields or len(names) == 1):
                empty.append((ahead.first, max(1, len(fields))))
            continue
        yield from between_rows(empty, names)
        problem = problem_of_fields(fields, names)
        if is_behind_bad and not problem and has_loose_quote("".join(ahead.row), delimiter):
            problem = (
                "a quote in a text that begins with none, behind a bad row: is this the end of that row?"
            )
        if not problem and delimiter == "\t" and have_tabs_of_rows(ahead.row, len(names)):
            problem = (
                f"a quote holds {len(ahead.row)} lines together that have the tabs of a row each: if that is "
                "meant, write a .jsonl file"
            )
        is_behind_bad = bool(problem)
        yield ahead.first, f"not valid CSV ({problem})" if problem else fields
        if problem and any(is_row(line, delimiter, len(names)) for line in ahead.row[1:]):
            ahead.give_back()
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


class Lookahead(Iterator[str]):
    """Lines that can be given back: all but the first since the last `keep`.

    Args:
        lines: Numbered lines.
        limit: How long a line may be.
    """

    def __init__(self, lines: Iterator[tuple[int, str]], limit: Limit):
        self.lines, self.limit = lines, limit
        self.again: deque[tuple[int, str]] = deque()
        self.taken: list[tuple[int, str]] = []
        self.size = 0
        self.damage: DamageError | None = None
        """Why there are no more lines, if they broke off; raised when all that are whole have been read."""

    def __next__(self) -> str:
        """Take a line.

        Raises:
            TooLongError: It, or the row that it continues, is too long.
        """
        number, line = self.again.popleft() if self.again else self._new()
        self.taken.append((number, line))
        self.size += len(line)
        if len(line) > self.limit.characters:
            raise TooLongError(self.limit.problem())
        if len(self.taken) > 1 and self.size > MOST_QUOTED:
            raise TooLongError(
                f"not valid CSV (a quote is not closed within {MOST_QUOTED:,} characters: a longer text "
                "stands on one line, or in a .jsonl file)"
            )
        return line

    def keep(self) -> None:
        """Begin a row: what was taken stays taken."""
        self.taken.clear()
        self.size = 0

    def give_back(self) -> None:
        """Offer the lines behind the first one again."""
        self.again.extendleft(reversed(self.taken[1:]))
        self.keep()

    @property
    def first(self) -> int:
        """The number of the first line taken."""
        return self.taken[0][0]

    @property
    def row(self) -> list[str]:
        """The lines that were taken."""
        return [line for _, line in self.taken]

    def _new(self) -> tuple[int, str]:
        if self.damage is not None:
            raise StopIteration
        try:
            return next(self.lines)
        except DamageError as damage:
            self.damage = damage
            raise StopIteration from None


def is_row(line: str, delimiter: str, names: int) -> bool:
    """Return whether a line of a table of several columns is a whole row."""
    try:
        return names > 1 and len(next(csv.reader([line], delimiter=delimiter, strict=True), [])) == names
    except csv.Error:
        return False


def have_tabs_of_rows(lines: Sequence[str], names: int) -> bool:
    r"""Return whether each of several lines has the tabs of a row, as the lines of a text hardly ever have.

    >>> [have_tabs_of_rows(lines, 2) for lines in (['"He\t1', 'said"\t0'], ['"He', 'said"\t0'])]
    [True, False]
    """
    return len(lines) > 1 and names > 1 and all(line.count("\t") == names - 1 for line in lines)


def has_loose_quote(text: str, delimiter: str) -> bool:
    r"""Return whether a row has a quote inside a text that none encloses, which RFC 4180 forbids.

    >>> [has_loose_quote(text, ",") for text in ('5" pipe,1', 'end.",1', '"a, ""b,",1', "plain")]
    [True, True, False, False]
    """
    field = rf'(?:"(?:[^"]|"")*"|[^"{delimiter}]*)'
    return '"' in text and not re.fullmatch(rf"{field}(?:{delimiter}{field})*", text.rstrip("\r\n"))


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
    fitting = [delimiter for delimiter, found in names.items() if set(columns) <= set(found)]
    return fitting[0] if fitting else max(names, key=lambda delimiter: len(names[delimiter]))


def names_in(header: str, delimiter: str) -> list[str]:
    """Split a line; one that is not valid has no names."""
    try:
        return next(csv.reader([header], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []
