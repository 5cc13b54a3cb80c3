"""A report as a list of blocks: `markdown.py` and `page.py` write the same blocks as Markdown and as a page.

The contents of a report are decided once, by its list of blocks; each format decides how they look.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .verdicts import Verdict


@dataclass(frozen=True)
class Run:
    """A piece of a line of text."""

    text: str
    role: str = "plain"
    """`plain`, or: `blank` hides something, `truth` is what it hides, `right` and `wrong` are answers."""


@dataclass(frozen=True)
class Verdicts:
    """What the figures show, a sentence each: the first thing to read."""

    verdicts: Sequence[Verdict]


@dataclass(frozen=True)
class Heading:
    """Begin a section."""

    text: str


@dataclass(frozen=True)
class Prose:
    """A paragraph; `[words](file)` leads to a file that lies beside the report, backquotes enclose code.

    Nothing else has a meaning, here or in any other text of a block: what is other people's stands as it is.
    """

    text: str


@dataclass(frozen=True)
class Table:
    """Rows of cells below the names of their columns; all columns but the first are numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    strong: int | None = None
    """Number of the row to look at."""


@dataclass(frozen=True)
class Figure:
    """A chart, as a file beside the report and as a drawing for the page."""

    file: str
    """Name of the PNG file."""
    drawing: str
    """The same as SVG."""
    about: str
    """What it shows."""


@dataclass(frozen=True)
class Bar:
    """A share between 0 and 1 with its name."""

    name: str
    share: float
    shown: str
    """The share as it is to be read."""
    strong: bool = False
    """Whether it is the one to look at."""
    interval: tuple[float, float] | None = None
    """Ends of the share's 95 % interval, drawn as a whisker."""


@dataclass(frozen=True)
class Card:
    """What a reader should see at a glance."""

    title: str
    headline: str
    """The one figure to remember."""
    about: str
    """What the figure is of, in words that follow it."""
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Cards:
    """Cards beside one another."""

    cards: Sequence[Card]


@dataclass(frozen=True)
class Line:
    """A labelled line of text."""

    label: str
    runs: Sequence[Run]


@dataclass(frozen=True)
class Example:
    """Lines of text that belong together, and how likely the model thought what."""

    lines: Sequence[Line]
    bars: Sequence[Bar] = ()


@dataclass(frozen=True)
class Examples:
    """Examples of one kind."""

    examples: Sequence[Example]
    are_narrow: bool = False
    """Whether two of them fit beside each other."""


@dataclass(frozen=True)
class Beside:
    """Lists of examples beside one another, each below its name."""

    lists: Sequence[tuple[str, Sequence[Example]]]


Block = Verdicts | Heading | Prose | Table | Figure | Cards | Examples | Beside


@dataclass(frozen=True)
class Report:
    """A title, a sentence below it, and blocks."""

    title: str
    about: str
    blocks: Sequence[Block]


def first_block(verdicts: Sequence[Mapping[str, Any]]) -> list[Verdicts]:
    """Make the block of verdicts that a file of scores holds; none where nothing was compared."""
    return [Verdicts([Verdict(**each) for each in verdicts])] if verdicts else []


def counted(number: int, noun: str) -> str:
    """Write a number of things.

    >>> counted(1, "row"), counted(1600, "training row")
    ('1 row', '1,600 training rows')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def percent(share: float) -> str:
    """Write a share in percent."""
    return f"{share:.0%}" if share >= 0.1 or share == 0 else f"{share:.1%}"


def number(value: float) -> str:
    """Write a number with three digits or more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def name_of_model(path: str) -> str:
    """Describe which model a path or id means: runs write theirs into folders that are all called `model`.

    >>> name_of_model("runs/encoder-english/model"), name_of_model("google-bert/bert-base-uncased")
    ('encoder-english', 'bert-base-uncased')
    """
    *above, last = Path(path).parts
    return above[-1] if last == "model" and above else last


def format_score(value: float | None, digits: int = 4) -> str:
    """Write a score, or a dash where it is not defined."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}g}"
