"""A report as Markdown, with its figures as files beside it."""

import re
from collections.abc import Sequence
from functools import singledispatch

from ..ground.markdown import as_code, escaped, in_fence
from .blocks import (
    Bar,
    Beside,
    Block,
    Cards,
    Example,
    Examples,
    Figure,
    Heading,
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

MARKS = {
    "plain": ("", ""),
    "truth": ("**", "**"),
    "right": ("**", "**"),
    "wrong": ("_", "_"),
}
"""What Markdown puts around a run of text, by its role; what is `blank` is code."""


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
def _(block: Verdicts) -> str:
    return "\n".join(f"- **{escaped(verdict.text)}**" for verdict in block.verdicts)


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


@markdown.register
def _(block: Beside) -> str:
    return "\n\n".join(
        f"### {escaped(name)}\n\n{markdown(Examples(examples))}" for name, examples in block.lists
    )


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
