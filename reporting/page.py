"""A report as one HTML page that needs nothing else: no network, no scripts, no other file.

Colours follow the reader's light or dark setting; charts are drawings that follow it, too.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from html import escape

from .blocks import (
    Bar,
    Beside,
    Block,
    Card,
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
from .markdown import LINK
from .style import STYLE

OUTCOMES = {"better": "Better", "worse": "Worse", "unclear": "No measurable difference"}
"""Outcome of a verdict -> its label; what cannot be told is neither."""

MOST_HEADINGS_WITHOUT_CONTENTS = 2
"""Sections that need no list of contents."""

NUMBER = re.compile(r"(-?[\d,]+)(\.\d+)?(%?)")
"""A cell that is aligned by its decimal point."""


def as_page(report: Report) -> str:
    """Write a report as a whole HTML page."""
    anchors = anchors_of(report.blocks)
    parts = [html(block) for block in report.blocks]
    for place, anchor in anchors.items():
        parts[place] = parts[place].replace("<h2>", f'<h2 id="{anchor}">', 1)
    if len(anchors) > MOST_HEADINGS_WITHOUT_CONTENTS:
        parts.insert(int(isinstance(report.blocks[0], Verdicts)), contents(report.blocks, anchors))
    body = "\n".join(parts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(report.title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{escape(report.title)}</h1>
<p class="about">{escape(report.about)}</p>
{body}
</main>
</body>
</html>
"""


def anchors_of(blocks: Sequence[Block]) -> dict[int, str]:
    """Name each heading by its words, by the place of its block; a name that is taken gets a number."""
    anchors: dict[int, str] = {}
    for place, block in enumerate(blocks):
        if isinstance(block, Heading):
            name = "-".join(re.findall(r"\w+", block.text.lower())) or "section"
            anchors[place] = name if name not in anchors.values() else f"{name}-{place}"
    return anchors


def contents(blocks: Sequence[Block], anchors: Mapping[int, str]) -> str:
    """List the headings, each a link to its place."""
    links = "".join(
        f'<li><a href="#{anchor}">{escape(block.text)}</a></li>'
        for place, anchor in anchors.items()
        if isinstance(block := blocks[place], Heading)
    )
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>'


@singledispatch
def html(block: Block) -> str:
    """Write one block as HTML."""
    raise AssertionError(block)


@html.register
def _(block: Verdicts) -> str:
    lines = "".join(
        f'<li class="{each.outcome}"><span class="outcome">{OUTCOMES[each.outcome]}</span>'
        f"{escape(each.text)}</li>"
        for each in block.verdicts
    )
    return f'<ul class="verdicts">{lines}</ul>'


@html.register
def _(block: Heading) -> str:
    return f"<h2>{escape(block.text)}</h2>"


@html.register
def _(block: Prose) -> str:
    return f"<p>{prose(block.text)}</p>"


@html.register
def _(block: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in block.columns)
    columns = [[*aligned(column)] for column in zip(*block.rows, strict=True)]
    rows = "".join(
        f"<tr{mark(index == block.strong)}>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n"
        for index, row in enumerate(zip(*columns, strict=True))
    )
    return f'<div class="wide"><table>\n<tr>{head}</tr>\n{rows}</table></div>'


@html.register
def _(block: Figure) -> str:
    return f'<figure role="img" aria-label="{escape(block.about)}">{block.drawing}</figure>'


@html.register
def _(block: Cards) -> str:
    return f'<div class="cards">{"".join(map(card, block.cards))}</div>'


@html.register
def _(block: Beside) -> str:
    lists = "".join(
        f"<section><h3>{escape(name)}</h3>{html(Examples(examples))}</section>"
        for name, examples in block.lists
    )
    return f'<div class="beside">{lists}</div>'


@html.register
def _(block: Examples) -> str:
    kind = "examples narrow" if block.are_narrow else "examples"
    return f'<div class="{kind}">{"".join(map(example, block.examples))}</div>'


def card(content: Card) -> str:
    """Write a card."""
    return (
        f'<section class="card"><h3>{escape(content.title)}</h3>'
        f"<strong>{escape(content.headline)}</strong><p>{prose(content.about)}</p>"
        f"{bars(content.bars)}</section>"
    )


def example(content: Example) -> str:
    """Write an example, its labels beside its lines."""
    lines = "".join(
        f"<dt>{escape(line.label)}</dt><dd>{''.join(map(marked, line.runs))}</dd>" for line in content.lines
    )
    return f'<div class="example"><dl>{lines}</dl>{bars(content.bars) if content.bars else ""}</div>'


def bars(shown: Sequence[Bar]) -> str:
    """Write bars, each with its name and number."""
    rows = "".join(
        f'<div class="bar{" strong" if bar.strong else ""}"><span>{escape(bar.name)}</span>'
        f'<span class="number">{escape(bar.shown)}</span>'
        f'<span class="track"><i style="width:{bar.share:.1%}"></i>{whisker(bar)}</span></div>'
        for bar in shown
    )
    return f'<div class="bars">{rows}</div>'


def whisker(bar: Bar) -> str:
    """Draw the interval of a bar, if it has one."""
    if bar.interval is None:
        return ""
    low, high = (min(max(end, 0.0), 1.0) for end in bar.interval)
    # A whisker is two pixels wide at least, and one at the right end would stick out without the minimum.
    return f'<b style="left:min({low:.1%},100% - 2px);width:{high - low:.1%}"></b>'


def aligned(cells: Sequence[str]) -> Iterator[str]:
    """Write a column's cells; numbers get invisible decimals, so that their points stand below each other."""
    found = [NUMBER.fullmatch(cell) for cell in cells]
    longest = max((len(number[2] or "") for number in found if number), default=0)
    for cell, number in zip(cells, found, strict=True):
        if number is None or len(decimals := number[2] or "") == longest:
            yield escape(cell)
        else:
            missing = ".".ljust(longest, "0")[len(decimals) :]
            yield f"{number[1]}{decimals}<u>{missing}</u>{number[3]}"


def marked(run: Run) -> str:
    """Write a run of text in the colours of its role; white space at its edges stays uncoloured."""
    core = run.text.strip()
    if run.role == "plain" or not core:
        return escape(run.text)
    before, _, after = run.text.partition(core)
    return f'{escape(before)}<span class="{run.role}">{escape(core)}</span>{escape(after)}'


def mark(strong: bool) -> str:
    """Give the attribute of what is to be looked at."""
    return ' class="strong"' if strong else ""


def prose(text: str) -> str:
    """Escape a text, make its links, and set what stands between backquotes as code."""
    parts = LINK.sub(r'<a href="\2">\1</a>', escape(text)).split("`")
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))
