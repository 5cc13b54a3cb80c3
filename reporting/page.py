"""A report as one HTML page that needs nothing else: no network, no scripts, no other file.

Colours follow the reader's light or dark setting; charts are drawings that follow it, too.
"""

from collections.abc import Sequence
from functools import singledispatch
from html import escape

from .blocks import (
    LINK,
    Bar,
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
)

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fdfcfa; --card: #ffffff; --ink: #1f2328; --quiet: #6b7078; --line: #e4e1da;
  --first: #1f5fbf; --second: #c4581d; --third: #8a8f98; --fill: #dfe3e8;
  --right: #d9f0df; --right-ink: #14562b; --wrong: #fbe3dc; --wrong-ink: #8c2f14;
  --truth: #fff1c2; --truth-ink: #6b5200;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14161a; --card: #1b1e24; --ink: #e6e4df; --quiet: #9aa0a8; --line: #2e323a;
    --first: #7fb0ff; --second: #f0945c; --third: #7d838c; --fill: #343a44;
    --right: #1d3b28; --right-ink: #a5dcb5; --wrong: #452419; --wrong-ink: #f2b09a;
    --truth: #40361a; --truth-ink: #f0d98c;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 17px/1.6 Charter, "Bitstream Charter", "Source Serif 4", Georgia, "DejaVu Serif", serif; }
main { max-width: 1020px; margin: 0 auto; padding: 4.5rem 1.5rem 6rem; }
h1 { font-size: 2.3rem; line-height: 1.15; letter-spacing: -0.015em; margin: 0 0 .6rem; font-weight: 600;
  text-wrap: balance; }
h2 { font-size: 1.4rem; letter-spacing: -0.01em; margin: 4rem 0 .6rem; padding-top: 1.2rem; font-weight: 600;
  border-top: 1px solid var(--line); }
p { max-width: 46rem; margin: .6rem 0 1.2rem; text-wrap: pretty; }
.about { font-size: 1.15rem; color: var(--quiet); margin-bottom: 2.2rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(280px, 1fr)); gap: 1.2rem; }
.card, .example { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.cards + p { margin-top: 1.6rem; }
.card { padding: 1.2rem 1.3rem 1.4rem; display: flex; flex-direction: column; }
.card h3 { margin: 0; font-size: 1.05rem; font-weight: 600; }
.card strong { font-size: 3rem; line-height: 1.25; font-weight: 600; letter-spacing: -0.02em;
  color: var(--first); }
.card p { margin: 0 0 1.1rem; color: var(--quiet); font-size: .95rem; line-height: 1.45; flex: 1; }
.examples { display: grid; grid-template-columns: minmax(0, 1fr); gap: .9rem; margin: 1.2rem 0 2.4rem; }
.narrow { grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); }
.example { padding: .9rem 1.2rem 1rem; }
dl { display: grid; grid-template-columns: 5.2rem 1fr; gap: .3rem 1rem; margin: 0; }
.narrow .example { font-size: .93rem; line-height: 1.5; }
.narrow dl { grid-template-columns: 4.6rem 1fr; gap: .2rem .8rem; }
dt, .bars, table, .note { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
dt { color: var(--quiet); font-size: .76rem; line-height: 1.65rem; }
dd { margin: 0; overflow-wrap: anywhere; }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: .28rem .8rem;
  align-items: center; font-size: .84rem; line-height: 1.35; }
.example .bars { margin: .7rem 0 0 5.4rem; grid-template-columns: 8rem 1fr 2.8rem; font-size: .8rem; }
.bars .track { height: .62rem; border-radius: 3px;
  background: color-mix(in srgb, var(--fill) 45%, transparent); }
.bars .track i { display: block; height: 100%; min-width: 2px; border-radius: 3px; background: var(--third); }
.bars .strong { font-weight: 650; color: var(--first); }
.bars .strong i { background: var(--first); }
.bars .number { text-align: right; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; margin: .6rem 0 1.6rem; width: 100%; }
th { color: var(--quiet); font-weight: 500; font-size: .8rem; border-bottom: 1px solid var(--line); }
th, td { padding: .42rem .9rem .42rem 0; text-align: right; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; }
td { border-bottom: 1px solid color-mix(in srgb, var(--line) 55%, transparent); }
tr.strong td { font-weight: 650; color: var(--first); }
a { color: var(--first); }
figure { margin: 1.4rem 0 1.8rem; }
figure svg { width: 100%; height: auto; display: block; }
.right, .wrong, .truth, .blank { border-radius: 3px; padding: .04em .22em; box-decoration-break: clone; }
.right { background: var(--right); color: var(--right-ink); }
.wrong { background: var(--wrong); color: var(--wrong-ink); }
.truth { background: var(--truth); color: var(--truth-ink); }
.blank { background: var(--fill); color: var(--quiet); }
code { font: .88em ui-monospace, "DejaVu Sans Mono", monospace; }
@media (max-width: 640px) { dl { grid-template-columns: 1fr; gap: 0; } .example .bars { margin-left: 0; } }
@media print { main { padding: 0; } .card, .example, figure, table { break-inside: avoid; } }
"""


def as_page(report: Report) -> str:
    """Write a report as a whole HTML page."""
    body = "\n".join(html(block) for block in report.blocks)
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


@singledispatch
def html(block: Block) -> str:
    """Write one block as HTML."""
    raise AssertionError(block)


@html.register
def _(block: Heading) -> str:
    return f"<h2>{escape(block.text)}</h2>"


@html.register
def _(block: Prose) -> str:
    return f"<p>{prose(block.text)}</p>"


@html.register
def _(block: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in block.columns)
    rows = "".join(
        f"<tr{mark(index == block.strong)}>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n"
        for index, row in enumerate(block.rows)
    )
    return f'<div class="wide"><table>\n<tr>{head}</tr>\n{rows}</table></div>'


@html.register
def _(block: Figure) -> str:
    return f'<figure role="img" aria-label="{escape(block.about)}">{block.drawing}</figure>'


@html.register
def _(block: Cards) -> str:
    return f'<div class="cards">{"".join(map(card, block.cards))}</div>'


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
        f"<span{mark(bar.strong)}>{escape(bar.name)}</span>"
        f'<span class="track{" strong" if bar.strong else ""}"><i style="width:{bar.share:.1%}"></i></span>'
        f'<span class="number{" strong" if bar.strong else ""}">{escape(bar.shown)}</span>'
        for bar in shown
    )
    return f'<div class="bars">{rows}</div>'


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
