"""What reports, and the answers of models to play with, consist of: blocks, which are plain data.

`text.py` writes them as Markdown and for a terminal, `page.py` as HTML. The contents are decided once, by the
list of blocks; each format decides how they look.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .verdicts import Verdict


@dataclass(frozen=True)
class Run:
    """A piece of a line of text."""

    text: str
    role: str = "plain"
    """`plain`, or: `blank` hides something, `truth` is what it hides, `right` and `wrong` are answers, `new`
    is what a model wrote, `labelled` has a label."""
    label: str = ""
    """What a model labelled it."""


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
    """As many cells as there are columns."""
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
    """What was done."""
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
    """What the text is, shown before it."""
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


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Note:
    """A sentence in which nothing has a meaning, unlike in `Prose`."""

    text: str


@dataclass(frozen=True)
class Entry:
    """A ranked answer."""

    text: str
    """The answer."""
    value: float
    """What the entries are ranked by: a probability, a cosine, ..."""
    is_share: bool = True
    """Whether the value is shown in percent; otherwise with three digits."""

    @property
    def shown(self) -> str:
        return percent(self.value) if self.is_share else f"{self.value:.3f}"


@dataclass(frozen=True)
class Ranking:
    """Answers below a title, best first."""

    title: str
    entries: Sequence[Entry]

    @property
    def bars(self) -> list[Bar]:
        """Draw the entries as shares between 0 and 1, the best one to be looked at."""
        return [
            Bar(entry.text, min(max(entry.value, 0.0), 1.0), entry.shown, strong=number == 0)
            for number, entry in enumerate(self.entries)
        ]


@dataclass(frozen=True)
class Passage:
    """A text below a title, in pieces: which part a model wrote or labelled is seen."""

    title: str
    pieces: Sequence[Run]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True)
class Token:
    """A token as a model reads it."""

    text: str
    """The characters that it stands for, or its name where it stands for none."""
    token_id: int
    """Its number in the vocabulary."""
    probability: float | None = None
    """Given the tokens before it; only decoders have one, and not for the first token."""


@dataclass(frozen=True)
class Tokens:
    """A text as a row of tokens, below a title."""

    title: str
    tokens: Sequence[Token]


@dataclass(frozen=True)
class Heatmap:
    """Weights from 0 to 1 below a title: how much each row draws from each column. A row sums to 1.

    `rows` and `columns` are their names, `weights` a list for each row.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    weights: Sequence[Sequence[float]]

    @property
    def largest(self) -> float:
        """Return the largest weight, or 1 if there is none above 0."""
        return max((weight for row in self.weights for weight in row), default=1.0) or 1.0


@dataclass(frozen=True)
class Maps:
    """Maps of every head of every layer, of which a reader of the page chooses one, below a title: rows draw
    on columns.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    views: Mapping[str, Sequence[Sequence[Sequence[Sequence[float]]]]]
    """What is shown -> layers of heads of rows of weights from 0 to 1; all have the same sizes."""

    @property
    def first(self) -> Heatmap:
        """Return the map that is shown before a reader chooses."""
        name, layers = next(iter(self.views.items()))
        return Heatmap(f"{self.title}: {name}, layer 1, head 1", self.rows, self.columns, layers[0][0])


Result = Note | Ranking | Passage | Tokens
"""What a model to play with answers."""

Block = Verdicts | Heading | Prose | Table | Figure | Cards | Examples | Beside | Bullets | Maps | Result


@dataclass(frozen=True)
class Report:
    """A title, a sentence below it, and blocks."""

    title: str
    about: str
    """The sentence."""
    blocks: Sequence[Block]


def first_block(verdicts: Sequence[Mapping[str, Any]]) -> list[Verdicts]:
    """Make the block of verdicts that a file of scores holds; none where nothing was compared."""
    return [Verdicts([Verdict(**each) for each in verdicts])] if verdicts else []


def bars_of(
    values: Mapping[str, float | None],
    strong: str,
    intervals: Mapping[str, Sequence[float] | None] | None = None,
    shown: Callable[[float | None], str] | None = None,
) -> list[Bar]:
    """Draw values on one scale, from 0 to the largest of them and of their intervals' ends, or to 1.

    Args:
        values: By their names; what is not defined, or below 0, has no length.
        strong: The one to look at.
        intervals: Intervals of some of them; what has no width is not drawn.
        shown: Writes a value; by default with three digits.
    """
    known = {name: own for name, own in (intervals or {}).items() if own and own[0] < own[1]}
    ends = [end for own in known.values() for end in own if math.isfinite(end)]
    scale = max(1.0, *(abs(value or 0.0) for value in values.values()), *ends)

    def share(value: float | None) -> float:
        return max(value or 0.0, 0.0) / scale

    return [
        Bar(
            name,
            share(value),
            shown(value) if shown else format_score(value, 3),
            name == strong,
            (share(known[name][0]), share(known[name][1])) if name in known else None,
        )
        for name, value in values.items()
    ]


def percent(share: float) -> str:
    """Write a share in percent, small ones with more digits.

    >>> percent(0.5), percent(0.0123), percent(0.00004)
    ('50.0 %', '1.2 %', '0.004 %')
    """
    digits = 1 if share >= 0.001 or share == 0 else 3
    return f"{100 * share:.{digits}f} %"


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
