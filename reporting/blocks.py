"""A report as a list of blocks, and its Markdown. `page.py` makes an HTML page of the same blocks.

The contents of a report are decided once, by its list of blocks; each format decides how they look.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path

from ..interop.markdown import as_code, escaped, in_fence

LINK = re.compile(r"\[([^\[\]]+)\]\(([\w./-]+)\)")
"""Words in brackets, and a file beside the report: nothing that leads elsewhere."""

BAR_WIDTH = 20
"""Characters of a bar that stands for a share of 1."""

MARKS = {
    "plain": ("", ""),
    "truth": ("**", "**"),
    "right": ("**", "**"),
    "wrong": ("_", "_"),
}
"""What Markdown puts around a run of text, by its role; what is `blank` is code."""


@dataclass(frozen=True)
class Run:
    """A piece of a line of text."""

    text: str
    role: str = "plain"
    """`plain`, or: `blank` hides something, `truth` is what it hides, `right` and `wrong` are answers."""


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


Block = Heading | Prose | Table | Figure | Cards | Examples


@dataclass(frozen=True)
class Report:
    """A title, a sentence below it, and blocks."""

    title: str
    about: str
    blocks: Sequence[Block]


def as_markdown(report: Report) -> str:
    """Write a report as Markdown, with its figures as files beside it."""
    head = [f"# {escaped(report.title)}", escaped(report.about)]
    parts = [*head, *(markdown(block) for block in report.blocks)]
    return "\n\n".join(parts) + "\n"


@singledispatch
def markdown(block: Block) -> str:
    """Write one block as Markdown."""
    raise AssertionError(block)


@markdown.register
def _(block: Heading) -> str:
    return f"## {escaped(block.text)}"


@markdown.register
def _(block: Prose) -> str:
    return markdown_prose(block.text)


@markdown.register
def _(block: Table) -> str:
    cells = [[*map(escaped, row)] for row in block.rows]
    if block.strong is not None:
        cells[block.strong] = [f"**{cell}**" for cell in cells[block.strong]]
    rule = [":---", *["---:"] * (len(block.columns) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [[*map(escaped, block.columns)], rule, *cells])


@markdown.register
def _(block: Figure) -> str:
    return f"![{escaped(block.about)}]({block.file})"


@markdown.register
def _(block: Cards) -> str:
    return "\n\n".join(
        f"**{escaped(card.title)}: {escaped(card.headline)}** {markdown_prose(card.about)}\n\n"
        f"{markdown_bars(card.bars)}"
        for card in block.cards
    )


@markdown.register
def _(block: Examples) -> str:
    # Without a comment between them, Markdown would join two quotations.
    return "\n\n<!-- -->\n\n".join(map(markdown_example, block.examples))


def markdown_example(example: Example) -> str:
    """Write an example as a quotation, a line a line."""
    lines = [f"> {escaped(line.label)}: {''.join(map(markdown_run, line.runs))}  " for line in example.lines]
    return "\n".join(lines) + (f"\n\n{markdown_bars(example.bars)}" if example.bars else "")


def markdown_bars(bars: Sequence[Bar]) -> str:
    """Draw bars of characters."""
    names = [" ".join(bar.name.split()) for bar in bars]
    width = max(map(len, names))
    lines = [
        f"{name:<{width}}  {'█' * round(bar.share * BAR_WIDTH):<{BAR_WIDTH}}  {bar.shown}"
        + ("  <--" if bar.strong else "")
        for name, bar in zip(names, bars, strict=True)
    ]
    return in_fence("\n".join(lines), "text")


def markdown_run(run: Run) -> str:
    """Write a run of text; white space at its edges stays outside its marks, where Markdown wants it."""
    core = run.text.strip()
    if not core:
        return escaped(run.text)
    before, _, after = map(escaped, run.text.partition(core))
    if run.role == "blank":
        return f"{before}{as_code(core)}{after}"
    opening, closing = MARKS[run.role]
    return f"{before}{opening}{escaped(core)}{closing}{after}"


def markdown_prose(text: str) -> str:
    """Keep links and code, and escape all else."""
    parts = text.split("`")
    return "".join(as_code(part) if index % 2 else linked(part) for index, part in enumerate(parts))


def linked(text: str) -> str:
    """Keep links, and escape all else."""
    end, shown = 0, []
    for link in LINK.finditer(text):
        shown += [escaped(text[end : link.start()]), f"[{escaped(link[1])}]({link[2]})"]
        end = link.end()
    return "".join([*shown, escaped(text[end:])])


def percent(share: float) -> str:
    """Write a share in percent."""
    return f"{share:.0%}" if share >= 0.1 or share == 0 else f"{share:.1%}"


def number(value: float) -> str:
    """Write a number with three digits or more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def name_of_model(path: str) -> str:
    """Say which model a path or id means: runs write theirs into folders that are all called `model`.

    >>> name_of_model("runs/encoder-english/model"), name_of_model("google-bert/bert-base-uncased")
    ('encoder-english', 'bert-base-uncased')
    """
    *above, last = Path(path).parts
    return above[-1] if last == "model" and above else last


def format_score(value: float | None, digits: int = 4) -> str:
    """Write a score, or a dash where it is not defined."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}g}"
