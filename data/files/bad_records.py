"""Bad records: what is no text is refused with its location, or left out and counted, with a warning.

A record is what a corpus consists of: a document of a `.txt` file, a row of any other. It is bad if it
cannot be read, lacks a column that it should have, or holds something there that is no text. A labelled row
of a task that cannot be used is a `RowError`, and `bad_rows.py` says what is done about it.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

SHOWN = 3
"""How many bad records are named where many are counted."""


class Record(NamedTuple):
    """A record of a corpus, or what is wrong with it."""

    location: str
    """Where it is found again: file and line."""
    row: dict[str, Any]
    """Its contents by the names of the columns."""
    problem: str = ""
    """Why it cannot be read; empty if it can."""
    number: int = 0
    """Its line, or its own number where the file has no lines, from 1."""
    is_end: bool = False
    """Whether nothing behind it can be read."""


class DamageError(Exception):
    """From a line or row on, a file is no file of its kind; the cause says why.

    Args:
        number: Of that line or row.
    """

    def __init__(self, number: int):
        self.number = number


class Limit(NamedTuple):
    """How long a record may be."""

    characters: int = 2**28
    """At most; the default holds four hundred novels."""
    remedy: str = "shorten it"
    """What to do about one that is longer."""

    def problem(self) -> str:
        """Describe of a record that it is too long."""
        return f"has more than {self.characters:,} characters ({self.remedy})"


@dataclass
class Tally:
    """What a reading of a corpus met."""

    records: int = 0
    """All records, bad ones included."""
    skipped: int = 0
    """Bad ones, which were left out."""
    one_sided: int = 0
    """Pairs with text on one side only, which were left out."""
    first: list[str] = field(default_factory=list)
    """The first bad ones, each with its location and its problem."""
    names: dict[str, int] = field(default_factory=dict)
    """How often names of tokens that begin or end texts stand in the text, which are read as text."""

    bytes: int = 0
    """Of the text, where its tokenizer may drop some of it."""
    dropped: int = 0
    """Those of them that the tokenizer drops, as it has no token for them."""

    @classmethod
    def joined(cls, tallies: Iterable[Self]) -> Self:
        """Put together what was met in the parts of a text."""
        whole = cls()
        for tally in tallies:
            for name in ("records", "skipped", "one_sided", "bytes", "dropped"):
                setattr(whole, name, getattr(whole, name) + getattr(tally, name))
            whole.first += tally.first[: max(0, SHOWN - len(whole.first))]
            for name, number in tally.names.items():
                whole.names[name] = whole.names.get(name, 0) + number
        return whole

    def count_names(self, text: str, names: Sequence[str]) -> None:
        """Count names in a text."""
        for name in names:
            if number := text.count(name):
                self.names[name] = self.names.get(name, 0) + number

    def skip(self, location: str, problem: str) -> None:
        """Count a bad record."""
        self.skipped += 1
        if len(self.first) < SHOWN:
            self.first.append(f"{location}: {problem}")

    @property
    def causes(self) -> set[str]:
        """Name what there is to warn of."""
        return {name for name in ("skipped", "one_sided", "dropped", "names") if getattr(self, name)}

    def warn(self, name: str) -> None:
        """Warn of what is left out of the corpus `name` or read as text, if anything; once in Python."""
        if self.dropped:
            warnings.warn(
                f"corpus {name}: {dropped_in_words(self.dropped, self.bytes)}: scores are of the rest alone, "
                "without bits per byte; choose a tokenizer for this language, or a byte-level one with all "
                "256 bytes",
                stacklevel=1,
            )
        if self.skipped:
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
        """Return how many records were skipped, and which came first."""
        more = "; ..." if self.skipped > len(self.first) else ""
        return f"skipped {self.skipped:,} of {self.records:,} records as bad: {'; '.join(self.first)}{more}"


def dropped_in_words(dropped: int, total: int) -> str:
    """Say how many bytes of a text a tokenizer drops."""
    return (
        f"the tokenizer drops {dropped / total:.2%} of the text ({dropped:,} of {total:,} bytes), for which "
        "it has no token, not even an unknown one"
    )


def refusal(location: str, problem: str) -> ValueError:
    """Refuse a bad record."""
    return ValueError(f"{location}: {problem}: correct the file, or set corpus.skip_bad_records=true")


def problem_of(row: dict[str, Any], columns: Sequence[str]) -> str:
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


def foreign_in(row: dict[str, Any], columns: Sequence[str]) -> str:
    r"""Describe which column of a labelled row holds, however deep, what no text does; empty if none.

    >>> foreign_in({"messages": [{"content": "a\ud800"}]}, ["messages", "label"])
    "'messages' holds U+D800, which is no character of a text"
    """
    for column in columns:
        if character := next(
            (found for text in texts_in(row.get(column)) if (found := foreign_character(text))), ""
        ):
            return f"{column!r} holds U+{ord(character):04X}, which is no character of a text"
    return ""


def texts_in(value: Any) -> Iterator[str]:
    """Find all texts in a value of plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in [*value, *(value.values() if isinstance(value, dict) else ())]:
            yield from texts_in(part)


def listed(names: Sequence[str] | dict[str, Any]) -> str:
    """Name columns, the first few of many; spaces that one might overlook are shown by quotes."""
    shown = [(name if name == " ".join(name.split()) else repr(name))[:40] for name in map(str, names)]
    return f"({', '.join(shown[:8])}{', ...' if len(shown) > 8 else ''})"


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
        """Return the same error of a row behind so many others."""
        return RowError(self.row + rows, self.complaint, self.reason)


def reason_of(complaint: str) -> str:
    """Cut a complaint where the row's own values begin.

    >>> reason_of("has no text in column 'text' (''): take it out"), reason_of("not valid JSON (character 3)")
    ("has no text in column 'text'", 'not valid JSON')
    """
    return complaint.partition(":")[0].partition(" (")[0]
