"""Bad rows of a task: refused with their place, left out or repaired, and counted.

stop     the first bad row is an error, with its file, line, value and remedy
skip     bad rows are left out: the result is that of a file without them
repair   what can be repaired without guessing is, as the task says; any other bad row is an error

A row is bad by itself, whatever others hold: its line cannot be read, or something in its columns is not what
the task reads. Only a value of another kind than most in its column is bad beside others. Where no row is
bad, all three are the same.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from datasets import Dataset

from .bad_records import SHOWN, RowError

OnBadRow = Literal["stop", "skip", "repair"]
"""What is done about bad rows."""

Check = Callable[[Dataset], None]
"""Raises a `RowError` if a row is bad."""

Repair = Callable[[Dataset, int], dict[str, Any] | None]
"""Gives the columns of a bad row that are repaired, or `None` where that would be a guess."""


def no_repair(rows: Dataset, row: int) -> dict[str, Any] | None:
    """Repair nothing."""
    return None


def no_check(rows: Dataset) -> None:
    """Refuse nothing."""


AT_ONCE = 256
"""Rows that are checked together where one of many is bad."""


@dataclass(frozen=True)
class Places:
    """Where each row stands."""

    source: str
    """The file, or the split of a data set."""
    numbers: np.ndarray
    """Of the rows, from 0; bad ones before them count, too."""
    lines: np.ndarray | None = None
    """In the file, from 1, if it has lines."""

    def select(self, indices: Sequence[int] | np.ndarray) -> "Places":
        """Return the places of some of the rows."""
        lines = None if self.lines is None else self.lines[indices]
        return Places(self.source, self.numbers[indices], lines)

    def of(self, row: int) -> str:
        """Describe where a row stands: `reviews.csv, line 7`."""
        return self.source if self.lines is None else f"{self.source}, line {self.lines[row]}"

    def row(self, row: int) -> str:
        """Describe a row by its line, or by its number where the source has none."""
        return self.of(row) if self.lines is not None else f"{self.source}, row {self.numbers[row] + 1:,}"

    def named(self, error: RowError) -> RowError:
        """Number the row of an error as in the file."""
        return RowError(int(self.numbers[error.row]), error.complaint, error.reason)

    def refusal(self, error: RowError, remedy: str = "") -> ValueError:
        """Refuse a bad row."""
        return ValueError(f"{self.of(error.row)}: {self.named(error)}{remedy}")


@dataclass
class RowTally:
    """What a reading met, and what was done about it."""

    rows: int = 0
    """All rows, bad ones included."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Bad rows that were left out, by the reason."""
    repaired: Counter[str] = field(default_factory=Counter)
    """Bad rows that were repaired, by the reason."""
    first: list[str] = field(default_factory=list)
    """Where the first bad rows stand."""

    def count(self, counter: Counter[str], place: str, reason: str) -> None:
        """Count a bad row as one that was left out or repaired."""
        counter[reason] += 1
        if len(self.first) < SHOWN:
            self.first.append(place)

    @property
    def has_bad_rows(self) -> bool:
        """Whether there were any."""
        return bool(self.left_out or self.repaired)

    @property
    def facts(self) -> dict[str, Any]:
        """Plain data, for a file."""
        return {
            "rows": self.rows,
            "left_out": dict(self.left_out),
            "repaired": dict(self.repaired),
            "first": self.first,
        }


def in_words(tallies: Mapping[str, Mapping[str, Any]]) -> str:
    """Describe in one line how many rows of each split were bad, and why; empty if none was.

    >>> tally = RowTally(900)
    >>> tally.count(tally.left_out, "reviews.csv, line 7", "has no text in column 'text'")
    >>> in_words({"train": tally.facts})
    "bad rows of train: 1 of 900 left out (1 has no text in column 'text'), first reviews.csv, line 7"
    """
    splits = []
    for split, facts in tallies.items():
        parts = [
            f"{sum(facts[done].values()):,} of {facts['rows']:,} {name} "
            f"({', '.join(f'{number:,} {reason}' for reason, number in facts[done].items())})"
            for done, name in (("left_out", "left out"), ("repaired", "repaired"))
            if facts[done]
        ]
        if parts:
            splits.append(f"of {split}: {', '.join(parts)}, first {facts['first'][0]}")
    return f"bad rows {'; '.join(splits)}" if splits else ""


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
