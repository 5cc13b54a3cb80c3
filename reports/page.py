"""A report as one HTML page that needs nothing else: no network, no other file, and no script but one.

The script (`maps.js`) shows the attention map that a reader chooses; without it, the first one is there.

The templates have one scale of sizes, one of distances, and colours that have a meaning: blue is what the
page is about, orange is a level to compare with, green and red are right and wrong. Colours follow the
reader's light or dark setting, and charts are drawings that follow it, too. Nothing is wider than its box:
tables and charts that need more room scroll inside their own. Every text is escaped.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args
from unicodedata import bidirectional

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ..data.files.atomic_writes import replace_text
from ..training.run_folder import MARKDOWN, PAGE
from .blocks import Block, Heading, Heatmap, Maps, Ranking, Report, Run, Table, Token, Verdicts, percent
from .text import LINK, as_markdown
from .verdicts import Decision

OUTCOMES = {"better": "Better", "worse": "Worse", "unclear": "No measurable difference"} | {
    outcome: outcome.capitalize() for outcome in get_args(Decision)
}
"""Outcome of a verdict -> its label; what cannot be told is neither."""

MOST_HEADINGS_WITHOUT_CONTENTS = 2
"""Sections that need no list of contents."""

NUMBER = re.compile(r"(-?[\d,]+)(\.\d+)?(%?)")
"""A cell that is aligned by its decimal point."""

CELL = 22
"""Width and height of a cell of a map, in units of its drawing."""

CHARACTER = 7.2
"""Width of a character there."""

MOST_CHARACTERS = 12
"""Of a token's name beside a map."""

FROM_RIGHT = ("R", "AL", "AN")
"""Classes of characters, by Unicode, that are written from right to left, or stand among such."""

LONGEST_WORD = 24
"""Characters from which on an answer gets more room than its bar."""


def save(report: Report, folder: Path) -> None:
    """Write a report into the folder of its run, as Markdown and as a page."""
    replace_text(folder / MARKDOWN, as_markdown(report))
    replace_text(folder / PAGE, as_page(report))


def as_page(report: Report) -> str:
    """Write a report as a whole HTML page."""
    anchors = anchors_of(report.blocks)
    has_contents = len(anchors) > MOST_HEADINGS_WITHOUT_CONTENTS
    contents_at = int(isinstance(report.blocks[0], Verdicts)) if has_contents else None
    return template("page.html").render(report=report, anchors=anchors, contents_at=contents_at)


def as_html(block: Block) -> str:
    """Write one block, which is no heading."""
    return getattr(template("blocks.html").module, type(block).__name__)(block)


def template(name: str) -> Any:
    return TEMPLATES.get_template(name)


def anchors_of(blocks: Sequence[Block]) -> dict[int, str]:
    """Name each heading by its words, by the place of its block; a name that is taken gets a number."""
    anchors: dict[int, str] = {}
    for place, block in enumerate(blocks):
        if isinstance(block, Heading):
            name = "-".join(re.findall(r"\w+", block.text.lower())) or "section"
            anchors[place] = name if name not in anchors.values() else f"{name}-{place}"
    return anchors


def aligned_rows(table: Table) -> Iterator[Sequence[Markup]]:
    """Yield the rows of a table, whose numbers have their points below each other."""
    return zip(*([*aligned(column)] for column in zip(*table.rows, strict=True)), strict=True)


def aligned(cells: Sequence[str]) -> Iterator[Markup]:
    """Write a column's cells; numbers get decimals that are invisible, in a notebook as well."""
    found = [NUMBER.fullmatch(cell) for cell in cells]
    longest = max((len(number[2] or "") for number in found if number), default=0)
    for cell, number in zip(cells, found, strict=True):
        if number is None or len(decimals := number[2] or "") == longest:
            yield escape(cell)
        else:
            missing = ".".ljust(longest, "0")[len(decimals) :]
            yield Markup(f'{number[1]}{decimals}<u style="visibility: hidden">{missing}</u>{number[3]}')


def prose(text: str) -> Markup:
    """Escape a text, make its links, and set what stands between backquotes as code."""
    parts = LINK.sub(r'<a href="\2">\1</a>', str(escape(text))).split("`")
    return Markup("".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts)))


def core_of(run: Run) -> tuple[str, str, str]:
    """Cut white space off both ends of a run."""
    core = run.text.strip()
    before, _, after = run.text.partition(core) if core else (run.text, "", "")
    return before, core, after


def laid_out(result: Heatmap) -> dict[str, Any]:
    """Place a row and a column for each token of a map, and a square for each weight."""
    rows, columns = ([*map(short, names)] for names in (result.rows, result.columns))
    side = CHARACTER * max(map(len, rows)) + 10
    above = CHARACTER * max(map(len, columns)) + 10
    largest = result.largest
    cells = [
        {
            "x": round(side + CELL * column),
            "y": round(above + CELL * row),
            "opacity": f"{weight / largest:.3f}",
            "about": f"{isolated(result.rows[row])} → {isolated(result.columns[column])}: {percent(weight)}",
        }
        for row, weights in enumerate(result.weights)
        for column, weight in enumerate(weights)
    ]
    return {
        "width": round(side + CELL * len(columns)),
        "height": round(above + CELL * len(rows)),
        "left": round(side - 6),
        "top": round(above - 6),
        "side": CELL - 1,
        "rows": [(name, round(above + CELL * (row + 0.68))) for row, name in enumerate(rows)],
        "columns": [(name, round(side + CELL * (column + 0.68))) for column, name in enumerate(columns)],
        "cells": cells,
    }


def in_thousandths(maps: Maps) -> list[Any]:
    """Return the weights of maps as whole numbers, a list of T * S for each view, layer and head."""
    return [
        [[[round(1000 * weight) for row in head for weight in row] for head in layer] for layer in layers]
        for layers in maps.views.values()
    ]


def has_maps(report: Report) -> bool:
    """Return whether a page needs the script of maps."""
    return any(isinstance(block, Maps) for block in report.blocks)


def short(name: str) -> str:
    return name if len(name) <= MOST_CHARACTERS else f"{name[: MOST_CHARACTERS - 1]}…"


def isolated(name: str) -> str:
    """Let a name that is written from right to left turn nothing around it (Unicode's FSI and PDI)."""
    turns = any(bidirectional(character) in FROM_RIGHT for character in name)
    return f"\u2068{name}\u2069" if turns else name


def has_sentences(ranking: Ranking) -> bool:
    """Return whether answers need more room than their bars."""
    return max((len(entry.text) for entry in ranking.entries), default=0) > LONGEST_WORD


def shade(token: Token) -> str:
    """Return how warm a token's colour is: the warmer, the less expected."""
    assert token.probability is not None
    return f"{100 * (1 - token.probability) ** 2:.0f}%"


def within(interval: tuple[float, float]) -> tuple[float, ...]:
    """Keep the ends of an interval within a bar's track."""
    return tuple(min(max(end, 0.0), 1.0) for end in interval)


def about(model: Any) -> str:
    """Describe in a sentence what a model to play with is."""
    kind, origin = model.facts["kind"], model.facts.get("origin")
    return f"{'An' if kind[0] in 'aeiou' else 'A'} {kind}{f', {origin}' if origin else ''}."


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
TEMPLATES.filters |= {
    "about": about,
    "aligned_rows": aligned_rows,
    "core": core_of,
    "has_maps": has_maps,
    "has_sentences": has_sentences,
    "in_thousandths": in_thousandths,
    "in_words": OUTCOMES.__getitem__,
    "kind": lambda block: type(block).__name__,
    "laid_out": laid_out,
    "percent": percent,
    "prose": prose,
    "shade": shade,
    "width": "{:.1%}".format,
    "within": within,
}
