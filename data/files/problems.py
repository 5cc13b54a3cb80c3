"""Bad records: where they stand, what is wrong with them, and how many were refused, left out or repaired.

A record is what a file consists of: a document of a corpus, or a row. It is bad if it cannot be read: then a
`Problem` takes its place. Or it cannot be used: a document has something in its columns that is no text, a
labelled row is refused by its task (`bad_rows.py`).
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

SHOWN = 3
"""How many bad records are named where many are counted."""

Row = dict[str, Any]
"""The contents of a record by the names of the columns."""


class Place(NamedTuple):
    """Where a record stands."""

    source: str | Path
    """The file, or the split of a data set."""
    row: int
    """Its number among all records of the source, from 1; bad ones count, too."""
    line: int | None = None
    """Where it begins, from 1, if the source has lines."""

    def __str__(self) -> str:
        """Describe it: `reviews.csv, line 7`."""
        return f"{self.source}, row {self.row:,}" if self.line is None else f"{self.source}, line {self.line}"


class Problem(NamedTuple):
    """Why a record cannot be read."""

    what: str
    """As it goes on after the place: `not valid JSON`."""
    is_end: bool = False
    """Whether nothing behind it can be read."""


Record = tuple[Place, Row | Problem]
"""A record of a source, or what is wrong with it."""


class DamageError(Exception):
    """From line or row `number` on, a file is no file of its kind; the cause says why."""

    def __init__(self, number: int):
        self.number = number


class Limit(NamedTuple):
    """How long a record may be."""

    characters: int = 2**28
    """At most; the default holds four hundred novels."""
    remedy: str = "shorten it"
    """What to do about one that is longer."""

    def problem(self) -> str:
        return f"has more than {self.characters:,} characters ({self.remedy})"


def reason_of(complaint: str) -> str:
    """Cut a complaint where the row's own values begin.

    >>> reason_of("has no text in column 'text' (''): take it out"), reason_of("not valid JSON (character 3)")
    ("has no text in column 'text'", 'not valid JSON')
    """
    return complaint.partition(":")[0].partition(" (")[0]


@dataclass
class Tally:
    """What a reading of documents or rows met, and what became of what was bad."""

    records: int = 0
    """All records, bad ones included."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Bad ones that were left out, by the reason."""
    repaired: dict[str, int] = field(default_factory=dict)
    """Bad ones that were repaired, by the reason."""
    first: list[str] = field(default_factory=list)
    """The first bad ones, each with its place and its problem."""

    one_sided: int = 0
    """Pairs with text on one side only, which were left out."""
    names: dict[str, int] = field(default_factory=dict)
    """How often names of tokens that begin or end texts stand in the text, which are read as text."""
    bytes: int = 0
    """Bytes of the text, where its tokenizer may drop some of it."""
    dropped: int = 0
    """Those of them that the tokenizer drops, as it has no token for them."""

    @classmethod
    def joined(cls, tallies: Iterable[Self]) -> Self:
        """Put together what was met in the parts of a text."""
        whole = cls()
        for tally in tallies:
            for name in ("records", "one_sided", "bytes", "dropped"):
                setattr(whole, name, getattr(whole, name) + getattr(tally, name))
            for name in ("left_out", "repaired", "names"):
                for key, number in getattr(tally, name).items():
                    add(getattr(whole, name), key, number)
            whole.first += tally.first[: max(0, SHOWN - len(whole.first))]
        return whole

    def leave_out(self, place: Place, problem: str) -> None:
        self._count(self.left_out, place, problem)

    def repair(self, place: Place, problem: str) -> None:
        self._count(self.repaired, place, problem)

    def _count(self, counts: dict[str, int], place: Place, problem: str) -> None:
        add(counts, reason_of(problem))
        if len(self.first) < SHOWN:
            self.first.append(f"{place}: {problem}")

    def count_names(self, text: str, names: Sequence[str]) -> None:
        for name in names:
            if number := text.count(name):
                add(self.names, name, number)

    @property
    def num_left_out(self) -> int:
        return sum(self.left_out.values())

    @property
    def causes(self) -> set[str]:
        """Name what there is to warn of."""
        return {name for name in ("left_out", "one_sided", "dropped", "names") if getattr(self, name)}

    @property
    def facts(self) -> dict[str, Any]:
        """What there is to tell of rows, if some were bad."""
        facts = {
            "rows": self.records,
            "left_out": self.left_out,
            "repaired": self.repaired,
            "first": self.first,
        }
        return facts if self.first else {}

    def warn(self, name: str) -> None:
        """Warn of what is left out of the corpus `name` or read as text, if anything; once in Python."""
        if self.dropped:
            warnings.warn(
                f"corpus {name}: {dropped_in_words(self.dropped, self.bytes)}: scores are of the rest alone, "
                "without bits per byte; choose a tokenizer for this language, or a byte-level one with all "
                "256 bytes",
                stacklevel=1,
            )
        if self.left_out:
            warnings.warn(f"corpus {name}: {self}", stacklevel=1)
        if self.one_sided:
            warnings.warn(
                f"corpus {name}: {self.one_sided:,} of {self.records:,} pairs have text on one side only, "
                "and are left out",
                stacklevel=1,
            )
        for token, number in self.names.items():
            warnings.warn(
                f"corpus {name}: {token!r}, which begins or ends texts for the tokenizer, stands in the text "
                f"{number:,} times and is read as text: name it in corpus.control_tokens if it is meant",
                stacklevel=1,
            )

    def __str__(self) -> str:
        """Return how many records were left out, and which came first."""
        number = self.num_left_out
        more = "; ..." if number > len(self.first) else ""
        return f"skipped {number:,} of {self.records:,} records as bad: {'; '.join(self.first)}{more}"


def add(counts: dict[str, int], key: str, number: int = 1) -> None:
    counts[key] = counts.get(key, 0) + number


def dropped_in_words(dropped: int, total: int) -> str:
    """Say how many bytes of a text a tokenizer drops."""
    return (
        f"the tokenizer drops {dropped / total:.2%} of the text ({dropped:,} of {total:,} bytes), for which "
        "it has no token, not even an unknown one"
    )


def usable(
    records: Iterable[Record],
    tally: Tally,
    problem_of: Callable[[Row], str],
    remedy: str,
    *,
    skip: bool,
    where: Callable[[Place], Place] = lambda place: place,
) -> Iterator[tuple[Place, Row]]:
    """Let the records through that can be used; a bad one is left out and counted, or refused.

    Args:
        problem_of: Says why a record that could be read cannot be used; empty if it can.
        where: Describes the place of a bad one.
    """
    for place, row in records:
        tally.records += 1
        if isinstance(row, Problem):
            problem = row.what
        elif not (problem := problem_of(row)):
            yield place, row
            continue
        if not skip:
            raise ValueError(f"{where(place)}: {problem}: {remedy}")
        tally.leave_out(where(place), problem)


TEXT_REMEDY = "correct the file, or set corpus.skip_bad_records=true"
"""What to do about a bad record of a corpus."""


def problem_of_texts(row: Row, columns: Sequence[str]) -> str:
    """Describe why a row has no text in one of its columns; nothing (`None`) is an empty text."""
    for column in columns:
        if column not in row:
            return f"has no column {column!r} but {listed(row)}"
        value = row[column]
        if value is None:
            continue
        if not isinstance(value, str):
            return f"{column!r} is no text but {type(value).__name__}"
        if character := foreign_character(value):
            return f"{column!r} holds U+{ord(character):04X}, which is no character of a text"
    return ""


def foreign_character(text: str) -> str:
    r"""Find what no text holds: the half of a surrogate pair, or NUL; empty if there is none.

    >>> foreign_character("Straße"), foreign_character("NUL" + chr(0))
    ('', '\x00')
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return text[error.start]
    return "\0" if "\0" in text else ""


def listed(names: Sequence[str] | Row) -> str:
    """Name columns, the first few of many; spaces that one might overlook are shown by quotes."""
    shown = [(name if name == " ".join(name.split()) else repr(name))[:40] for name in map(str, names)]
    return f"({', '.join(shown[:8])}{', ...' if len(shown) > 8 else ''})"
