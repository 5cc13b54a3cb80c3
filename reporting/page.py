"""A report as one HTML page that needs nothing else: no network, no scripts, no other file.

Its style has one scale of sizes, one of distances, and colours that have a meaning: blue is what the page is
about, orange is a level to compare with, green and red are right and wrong. Colours follow the reader's light
or dark setting, and charts are drawings that follow it, too. Nothing is wider than its box: tables and charts
that need more room scroll inside their own.
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
from .text import LINK

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
    """Return the attribute of what is to be looked at."""
    return ' class="strong"' if strong else ""


def prose(text: str) -> str:
    """Escape a text, make its links, and set what stands between backquotes as code."""
    parts = LINK.sub(r'<a href="\2">\1</a>', escape(text)).split("`")
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))


COLOURS = """
:root {
  color-scheme: light dark;
  --paper: #fdfcfa; --card: #ffffff; --ink: #1f2328; --quiet: #626871; --line: #e4e1da;
  --first: #1f5fbf; --second: #b84c14; --third: #8a8f98; --fill: #dfe3e8;
  --right: #d9f0df; --right-ink: #14562b; --wrong: #fbe3dc; --wrong-ink: #8c2f14;
  --truth: #fff1c2; --truth-ink: #6b5200;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14161a; --card: #1b1e24; --ink: #e6e4df; --quiet: #a2a8b0; --line: #2e323a;
    --first: #7fb0ff; --second: #f0945c; --third: #7d838c; --fill: #343a44;
    --right: #1d3b28; --right-ink: #a5dcb5; --wrong: #452419; --wrong-ink: #f2b09a;
    --truth: #40361a; --truth-ink: #f0d98c;
  }
}
"""

TEXT = """
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 17px/1.6 Charter, "Bitstream Charter", "Source Serif 4", Georgia, "DejaVu Serif", serif; }
main { max-width: 1020px; margin: 0 auto; padding: 4rem 1.5rem 6rem; }
h1, h2, h3, p, dd, td, th, .verdicts { overflow-wrap: anywhere; }
h1 { font-size: 2.2rem; line-height: 1.15; letter-spacing: -0.015em; margin: 0 0 .6rem; font-weight: 600;
  text-wrap: balance; }
h2 { font-size: 1.4rem; line-height: 1.25; letter-spacing: -0.01em; margin: 3.5rem 0 .6rem;
  padding-top: 1.2rem; font-weight: 600; border-top: 1px solid var(--line); scroll-margin-top: 1rem; }
h3 { font-size: 1.05rem; line-height: 1.35; font-weight: 600; margin: 0 0 .6rem; }
p { max-width: 46rem; margin: .6rem 0 1.2rem; text-wrap: pretty; }
a { color: var(--first); }
code { font: .88em ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
dt, .bars, table, nav, .outcome {
  font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
.about { font-size: 1.12rem; color: var(--quiet); margin-bottom: 1.6rem; }
.verdicts { list-style: none; margin: 1rem 0 2rem; padding: 0; display: grid; gap: .5rem; }
.verdicts li { background: var(--card); border: 1px solid var(--line); border-left: 4px solid var(--third);
  border-radius: 6px; padding: .65rem 1rem .7rem; line-height: 1.45; }
.verdicts .better { border-left-color: var(--right-ink); }
.verdicts .worse { border-left-color: var(--wrong-ink); }
.outcome { display: block; font-size: .72rem; font-weight: 650; letter-spacing: .04em; line-height: 1.6;
  text-transform: uppercase; color: var(--quiet); }
.better .outcome { color: var(--right-ink); }
.worse .outcome { color: var(--wrong-ink); }
nav { font-size: .84rem; line-height: 1.5; margin: 0 0 2rem; }
nav ul { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.3rem; }
nav a { text-decoration: none; }
nav a:hover { text-decoration: underline; }
"""

BOXES = """
.card, .example { background: var(--card); border: 1px solid var(--line); border-radius: 10px; min-width: 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 280px), 1fr)); gap: 1.2rem; }
.cards + p { margin-top: 1.6rem; }
.card { padding: 1.2rem 1.3rem 1.4rem; display: flex; flex-direction: column; }
.card h3 { margin: 0; }
.card strong { font-size: 3rem; line-height: 1.25; font-weight: 600; letter-spacing: -0.02em;
  color: var(--first); overflow-wrap: anywhere; }
.card p { margin: 0 0 1.1rem; color: var(--quiet); font-size: .95rem; line-height: 1.45; flex: 1; }
.bars { display: grid; gap: .55rem; font-size: .84rem; line-height: 1.35; }
.bar { display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: .15rem .8rem; }
.bar > span { overflow-wrap: anywhere; }
.bar .number { text-align: right; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
.bar .track { grid-column: 1 / -1; position: relative; height: .6rem; border-radius: 3px;
  background: color-mix(in srgb, var(--fill) 45%, transparent); }
.track i { display: block; height: 100%; min-width: 4px; border-radius: 3px; background: var(--third); }
.track b { position: absolute; top: 50%; height: 2px; margin-top: -1px; min-width: 2px;
  background: var(--ink); }
.track b::before, .track b::after { content: ""; position: absolute; top: -4px; height: 10px; width: 2px;
  background: var(--ink); }
.track b::before { left: 0; }
.track b::after { right: 0; }
.bar.strong { font-weight: 650; color: var(--first); }
.bar.strong i { background: var(--first); }
.examples { display: grid; grid-template-columns: minmax(0, 1fr); gap: .9rem; margin: 1.2rem 0 2.4rem;
  align-items: start; }
.narrow { grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); }
.beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr));
  gap: 1.4rem; margin: 1.4rem 0 2.4rem; align-items: start; }
.beside > section { min-width: 0; }
.beside .examples { margin: 0; }
.example { padding: .9rem 1.2rem 1rem; }
.example .bars { margin: .8rem 0 0; font-size: .8rem; }
dl { display: grid; grid-template-columns: 5.6rem minmax(0, 1fr); gap: .3rem 1rem; margin: 0; }
.narrow .example, .beside .example { font-size: .93rem; line-height: 1.5; }
dt { color: var(--quiet); font-size: .76rem; line-height: 1.65rem; overflow-wrap: anywhere; }
dd { margin: 0; padding-right: .3em; }
.right, .wrong, .truth, .blank { border-radius: 3px; padding: .04em .22em; box-decoration-break: clone;
  -webkit-box-decoration-break: clone; }
.right { background: var(--right); color: var(--right-ink); }
.wrong { background: var(--wrong); color: var(--wrong-ink); }
.truth { background: var(--truth); color: var(--truth-ink); }
.blank { background: var(--fill); color: var(--quiet); }
"""

TABLES = """
.wide, figure { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .9rem; line-height: 1.4; margin: .6rem 0 1.6rem; width: 100%; }
th { color: var(--quiet); font-weight: 500; font-size: .8rem; vertical-align: bottom;
  border-bottom: 1px solid var(--line); overflow-wrap: normal; }
th, td { padding: .42rem 0 .42rem 1.1rem; text-align: right; font-variant-numeric: tabular-nums; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td:first-child { white-space: normal; min-width: 9rem; }
td { border-bottom: 1px solid color-mix(in srgb, var(--line) 55%, transparent); }
tr.strong td { font-weight: 650; color: var(--first); }
td u { visibility: hidden; text-decoration: none; }
figure { margin: 1.4rem 0 1.8rem; }
figure svg { display: block; height: auto; width: calc(var(--width) * 1.35px); max-width: 100%;
  min-width: calc(var(--width) * .95px); }
@media (max-width: 640px) {
  main { padding: 2.2rem 1.1rem 4rem; }
  h1 { font-size: 1.7rem; }
  h2 { margin-top: 2.6rem; }
  .card strong { font-size: 2.5rem; }
  dl { grid-template-columns: minmax(0, 1fr); gap: 0; }
}
@media print {
  main { padding: 0; }
  nav { display: none; }
  .card, .example, figure, table { break-inside: avoid; }
}
"""

STYLE = COLOURS + TEXT + BOXES + TABLES
