"""Blocks as text: as Markdown, with their figures as files beside it, and for a terminal, as they are read.

Both have the same lines. A `Form` says in what they differ: what stands around what is not plain, that
Markdown escapes other people's text, and that tables line up in a terminal.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

from ..configs.markdown import as_code, escaped, in_fence
from .blocks import (
    Bar,
    Beside,
    Block,
    Bullets,
    Card,
    Cards,
    Example,
    Examples,
    Figure,
    Heading,
    Note,
    Prose,
    Report,
    Run,
    Table,
    Verdicts,
)

LINK = re.compile(r"\[([^\[\]]+)\]\(([\w./-]+)\)")
"""Words in brackets, and a file beside the report: nothing that leads elsewhere."""

BAR_WIDTH = 20
"""Characters of a bar that stands for a share of 1."""

WIDEST = 60
"""Characters of a ranked answer beside its bar; the rest is cut off."""


@dataclass(frozen=True)
class Form:
    """What distinguishes Markdown from text for a terminal."""

    escaped: Callable[[str], str]
    """Writes text of others so that it is read as it is."""
    as_code: Callable[[str], str]
    """Writes a name or a command as such."""
    as_drawing: Callable[[str], str]
    """Keeps lines of characters as they are."""
    strong: str
    """Stands around what is to be seen."""
    link: str
    """Format of a link, of words and a file."""
    figure: str
    """Format of a figure, of words about it and a file."""
    marks: Mapping[str, tuple[str, str]]
    """Role of a run of text -> what stands around it; around others nothing does."""
    between_examples: str
    """What separates two of them."""
    lines_up: bool
    """Whether the columns of tables stand below each other."""


MARKDOWN = Form(
    escaped=escaped,
    as_code=as_code,
    as_drawing=lambda lines: in_fence(lines, "text"),
    strong="**",
    link="[{}]({})",
    figure="![{}]({})",
    marks={"wrong": ("_", "_")} | dict.fromkeys(("truth", "right", "new", "labelled"), ("**", "**")),
    between_examples="\n\n<!-- -->\n\n",  # or Markdown would join two quotations
    lines_up=False,
)

TERMINAL = Form(
    escaped=str,
    as_code=lambda text: f"`{text}`",
    as_drawing=str,
    strong="",
    link="{} ({})",
    figure="{}: {}",
    marks=dict.fromkeys(("truth", "right", "wrong", "new", "labelled"), ("[", "]")),
    between_examples="\n\n",
    lines_up=True,
)


def as_markdown(report: Report) -> str:
    """Write a report as Markdown, with its figures as files beside it."""
    head = [f"# {escaped(report.title)}", escaped(report.about)]
    return "\n\n".join([*head, *(text_of(block, MARKDOWN) for block in report.blocks)]) + "\n"


def for_terminal(blocks: Iterable[Block]) -> str:
    return "\n\n".join(text_of(block, TERMINAL) for block in blocks)


@singledispatch
def text_of(block: Block, form: Form) -> str:
    raise AssertionError(block)


@text_of.register
def _(block: Verdicts, form: Form) -> str:
    return "\n".join(
        f"- {form.strong}{form.escaped(verdict.text)}{form.strong}" for verdict in block.verdicts
    )


@text_of.register
def _(block: Heading, form: Form) -> str:
    return f"## {form.escaped(block.text)}"


@text_of.register
def _(block: Prose, form: Form) -> str:
    return prose(block.text, form)


@text_of.register
def _(block: Note, form: Form) -> str:
    return form.escaped(block.text)


@text_of.register
def _(block: Bullets, form: Form) -> str:
    return "\n".join(f"- {form.escaped(line)}" for line in block.lines)


@text_of.register
def _(block: Table, form: Form) -> str:
    rows = [[*map(form.escaped, row)] for row in (block.columns, *block.rows)]
    if block.strong is not None:
        rows[block.strong + 1] = [f"{form.strong}{cell}{form.strong}" for cell in rows[block.strong + 1]]
    widths = [max(map(len, column)) if form.lines_up else 0 for column in zip(*rows, strict=True)]
    left = "-" * widths[0] if form.lines_up else ":---"
    rows.insert(1, [left, *("-" * (width - 1 if form.lines_up else 3) + ":" for width in widths[1:])])
    for row in rows:
        row[:] = row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


@text_of.register
def _(block: Figure, form: Form) -> str:
    return form.figure.format(form.escaped(block.about), block.file)


@text_of.register
def _(block: Cards, form: Form) -> str:
    return "\n\n".join(card(each, form) for each in block.cards)


@text_of.register
def _(block: Examples, form: Form) -> str:
    return form.between_examples.join(example(each, form) for each in block.examples)


@text_of.register
def _(block: Beside, form: Form) -> str:
    return "\n\n".join(
        f"### {form.escaped(name)}\n\n{text_of(Examples(examples), form)}" for name, examples in block.lists
    )


def card(content: Card, form: Form) -> str:
    """Write a card, its figure first."""
    head = f"{form.escaped(content.title)}: {form.escaped(content.headline)}"
    drawing = form.as_drawing("\n".join(bar_lines(content.bars)))
    return f"{form.strong}{head}{form.strong} {prose(content.about, form)}\n\n{drawing}"


def example(content: Example, form: Form) -> str:
    """Write an example as a quotation, a line a line."""
    lines = [
        f"> {form.escaped(line.label)}: {''.join(run(each, form) for each in line.runs)}  "
        for line in content.lines
    ]
    if content.bars:
        lines += ["", form.as_drawing("\n".join(bar_lines(content.bars)))]
    return "\n".join(lines)


def bar_lines(bars: Sequence[Bar]) -> list[str]:
    """Draw bars of characters below each other, with an arrow to those that are to be looked at."""
    names = [shortened(each.name) for each in bars]
    width = max(map(len, names), default=0)
    return [
        f"{name:<{width}}  {bar(each.share):<{BAR_WIDTH}}  {each.shown}{'  <--' if each.strong else ''}"
        for name, each in zip(names, bars, strict=True)
    ]


def shortened(text: str) -> str:
    """Write a name in one line that fits beside its bar."""
    line = " ".join(text.split())
    return line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…"


def bar(share: float) -> str:
    return "█" * round(share * BAR_WIDTH)


def run(piece: Run, form: Form) -> str:
    """Write a run of text; white space at its edges stays outside its marks, where Markdown wants it."""
    core = piece.text.strip()
    if not core:
        return form.escaped(piece.text)
    before, _, after = map(form.escaped, piece.text.partition(core))
    if piece.role == "blank":
        return f"{before}{form.as_code(core)}{after}"
    opening, closing = form.marks.get(piece.role, ("", ""))
    label = f": {form.escaped(piece.label)}" if piece.label else ""
    return f"{before}{opening}{form.escaped(core)}{label}{closing}{after}"


def prose(text: str, form: Form) -> str:
    """Keep links and code, and escape all else."""
    parts = text.split("`")
    return "".join(
        form.as_code(part) if index % 2 else linked(part, form) for index, part in enumerate(parts)
    )


def linked(text: str, form: Form) -> str:
    """Keep links, and escape all else."""
    end, shown = 0, []
    for link in LINK.finditer(text):
        shown += [form.escaped(text[end : link.start()]), form.link.format(form.escaped(link[1]), link[2])]
        end = link.end()
    return "".join([*shown, form.escaped(text[end:])])
