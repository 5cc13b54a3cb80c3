"""A report as a list of blocks, and its Markdown. `report_page.py` makes an HTML page of the same blocks.

What is said in a report is decided once, by whoever lists its blocks; how it looks is decided here and there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

BAR_WIDTH = 20
"""Characters of a bar that stands for a share of 1."""

MARKS = {
    "plain": ("", ""),
    "blank": ("`", "`"),
    "truth": ("**", "**"),
    "right": ("**", "**"),
    "wrong": ("_", "_"),
}
"""What Markdown puts around a run of text, by its role."""


@dataclass(frozen=True)
class Run:
    """A piece of a line of text."""

    text: str
    role: str = "plain"
    """One of `MARKS`: `blank` hides something, `truth` is what it hides, `right` and `wrong` are answers."""


@dataclass(frozen=True)
class Heading:
    """Begin a section."""

    text: str


@dataclass(frozen=True)
class Prose:
    """A paragraph; `[words](file)` leads to a file that lies beside the report."""

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
    parts = [f"# {report.title}", report.about, *(markdown(block) for block in report.blocks)]
    return "\n\n".join(parts) + "\n"


@singledispatch
def markdown(block: Block) -> str:
    """Write one block as Markdown."""
    raise AssertionError(block)


@markdown.register
def _(block: Heading) -> str:
    return f"## {block.text}"


@markdown.register
def _(block: Prose) -> str:
    return block.text


@markdown.register
def _(block: Table) -> str:
    rows = [
        [f"**{cell}**" if index == block.strong else cell for cell in row]
        for index, row in enumerate(block.rows)
    ]
    rule = [":---", *["---:"] * (len(block.columns) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [block.columns, rule, *rows])


@markdown.register
def _(block: Figure) -> str:
    return f"![{block.about}]({block.file})"


@markdown.register
def _(block: Cards) -> str:
    return "\n\n".join(
        f"**{card.title}: {card.headline}** {card.about}\n\n{markdown_bars(card.bars)}"
        for card in block.cards
    )


@markdown.register
def _(block: Examples) -> str:
    # Without a comment between them, Markdown would join two quotations.
    return "\n\n<!-- -->\n\n".join(map(markdown_example, block.examples))


def markdown_example(example: Example) -> str:
    """Write an example as a quotation, a line a line."""
    lines = [f"> {line.label}: {''.join(map(markdown_run, line.runs))}  " for line in example.lines]
    return "\n".join(lines) + (f"\n\n{markdown_bars(example.bars)}" if example.bars else "")


def markdown_bars(bars: Sequence[Bar]) -> str:
    """Draw bars of characters."""
    width = max(len(bar.name) for bar in bars)
    lines = [
        f"{bar.name:<{width}}  {'█' * round(bar.share * BAR_WIDTH):<{BAR_WIDTH}}  {bar.shown}"
        + ("  <--" if bar.strong else "")
        for bar in bars
    ]
    return "\n".join(["```text", *lines, "```"])


def markdown_run(run: Run) -> str:
    """Write a run of text; white space at its edges stays outside its marks, where Markdown wants it."""
    opening, closing = MARKS[run.role]
    text = run.text if run.role == "blank" else escaped(run.text)
    core = text.strip()
    if not core:
        return text
    before, _, after = text.partition(core)
    return f"{before}{opening}{core}{closing}{after}"


def escaped(text: str) -> str:
    """Keep Markdown from reading marks into other people's text."""
    text = text.replace("\n", " ")
    return "".join(f"\\{character}" if character in "\\`*_[]<>|#" else character for character in text)


def percent(share: float) -> str:
    """Write a share in percent."""
    return f"{share:.0%}" if share >= 0.1 or share == 0 else f"{share:.1%}"


def number(value: float) -> str:
    """Write a number with three digits or more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
