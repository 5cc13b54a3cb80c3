"""Bad rows of a task: how one is refused with its place, and how all are found.

stop     the first bad row is an error, with its file, line, value and remedy
skip     bad rows are left out: the result is that of a file without them
repair   what can be repaired without guessing is, as the task says; any other bad row is an error

A row is bad by itself, whatever others hold: its line cannot be read, or something in its columns is not what
the task reads. Only a value of another kind than most in its column is bad beside others. Where no row is
bad, all three are the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from datasets import Dataset

from .problems import Place, Row, foreign_character, reason_of


class RowError(ValueError):
    """A row that cannot be used.

    Args:
        row: Its number, counted from 0; shown, it is counted from 1.
        complaint: What is wrong and what helps, as it goes on after `row 7`.
        reason: The same without the row's own values, to count alike rows by; by default, the complaint up to
            the first parenthesis or colon.
    """

    def __init__(self, row: int, complaint: str, reason: str = ""):
        super().__init__(f"row {row + 1:,} {complaint}")
        self.row = row
        self.complaint = complaint
        self.reason = reason or reason_of(complaint)

    def moved(self, rows: int) -> "RowError":
        return RowError(self.row + rows, self.complaint, self.reason)


@dataclass(frozen=True)
class Places:
    """The place of each row of a source, or of some of its rows."""

    source: str
    """The file, or the split of a data set."""
    rows: np.ndarray
    """Numbers of the rows, from 1."""
    lines: np.ndarray | None = None
    """On which they begin, if the source has lines."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Place:
        return Place(self.source, int(self.rows[row]), None if self.lines is None else int(self.lines[row]))

    def select(self, indices: Sequence[int] | np.ndarray) -> "Places":
        return Places(self.source, self.rows[indices], None if self.lines is None else self.lines[indices])

    def refusal(self, error: RowError, remedy: str = "") -> ValueError:
        """Refuse a bad row: `reviews.csv, line 7: row 6 has nothing in column 'label': ...`."""
        place = self[error.row]
        where = self.source if place.line is None else place
        return ValueError(f"{where}: row {place.row:,} {error.complaint}{remedy}")


OnBadRow = Literal["stop", "skip", "repair"]
"""What is done about bad rows."""

Check = Callable[[Dataset], None]
"""Raises a `RowError` if a row is bad."""

Repair = Callable[[Dataset, int], Row | None]
"""Gives the columns of a bad row that are repaired, or `None` where that would be a guess."""


def no_repair(rows: Dataset, row: int) -> Row | None:
    return None


def no_check(rows: Dataset) -> None:
    """Refuse nothing."""


AT_ONCE = 256
"""Rows that are checked together where one of many is bad."""


def bad_rows(rows: Dataset, check: Check) -> Iterator[RowError]:
    """Find all rows that a check refuses, from first to last."""
    if not len(rows):
        return
    with suppress(RowError):
        check(rows)
        return
    for first in range(0, len(rows), AT_ONCE):
        left = list(range(first, min(first + AT_ONCE, len(rows))))
        while left:
            try:
                check(rows.select(left))
                break
            except RowError as error:
                yield RowError(left.pop(error.row), error.complaint, error.reason)


def problem_of_values(row: Row, columns: Sequence[str]) -> str:
    r"""Describe which column of a row holds, however deep, what no text does; empty if none.

    >>> problem_of_values({"messages": [{"content": "a\ud800"}]}, ["messages", "label"])
    "'messages' holds U+D800, which is no character of a text"
    """
    for column in columns:
        value = row.get(column)
        texts = [value] if isinstance(value, str) else texts_in(value)
        if character := next(filter(None, map(foreign_character, texts)), ""):
            return f"{column!r} holds U+{ord(character):04X}, which is no character of a text"
    return ""


def texts_in(value: Any) -> Iterator[str]:
    """Find all texts in a value of plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in [*value, *(value.values() if isinstance(value, dict) else ())]:
            yield from texts_in(part)


def in_words(facts: Mapping[str, Mapping[str, Any]]) -> str:
    """Describe in one line how many rows of each split were bad, and why; empty if none was.

    >>> facts = {"rows": 9, "left_out": {"has no text": 1}, "repaired": {}, "first": ["a.csv, line 7: ..."]}
    >>> in_words({"train": facts})
    'bad rows of train: 1 of 9 left out (1 has no text), first a.csv, line 7: ...'
    """
    splits = []
    for split, about in facts.items():
        parts = [
            f"{sum(about[done].values()):,} of {about['rows']:,} {name} "
            f"({', '.join(f'{number:,} {reason}' for reason, number in about[done].items())})"
            for done, name in (("left_out", "left out"), ("repaired", "repaired"))
            if about[done]
        ]
        splits.append(f"of {split}: {', '.join(parts)}, first {about['first'][0]}")
    return f"bad rows {'; '.join(splits)}" if splits else ""
