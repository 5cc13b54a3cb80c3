"""Results as HTML, for the page. What people and models wrote is always escaped."""

from collections.abc import Iterable, Sequence
from functools import singledispatch
from html import escape

from ..reporting.blocks import Heatmap, Note, Passage, Ranking, Result, Run, Token, Tokens, percent
from .loaded_model import LoadedModel

CELL = 22
"""Width and height of a cell of a map, in units of its drawing."""

CHARACTER = 7.2
"""Width of a character there."""

MOST_CHARACTERS = 12
"""Of a token's name beside a map."""

LONGEST_WORD = 24
"""Characters from which on an answer gets more room than its bar."""

SHOWN_WEIGHT = 0.001
"""Share of the largest weight below which a cell is left out."""


def as_html(answers: Iterable[tuple[LoadedModel, Sequence[Result] | str]]) -> str:
    """Write the answers of models side by side; below each other where there is no room."""
    columns = [
        f'<section class="answer"><h3>{escape(model.title)}</h3>{body(answer)}</section>'
        for model, answer in answers
    ]
    alone = " alone" if len(columns) == 1 else ""
    return f'<div class="answers{alone}">{"".join(columns)}</div>'


def body(answer: Sequence[Result] | str) -> str:
    """Write the answer of one model, or the message that there is none."""
    if isinstance(answer, str):
        return f'<p class="refusal" role="alert">{escape(answer)}</p>'
    return "".join(map(html_of, answer))


def header(models: Sequence[LoadedModel]) -> str:
    """Write the title of the page and what the models are."""
    title = " and ".join(escape(model.title) for model in models)
    cards = "".join(map(card, models))
    return f'<header class="top"><h1>{title}</h1><div class="models">{cards}</div></header>'


def card(model: LoadedModel) -> str:
    """Write what a model is."""
    facts = model.facts
    rows = "".join(
        f"<div><dt>{name}</dt><dd>{escape(facts[name])}</dd></div>"
        for name in ("parameters", "layers", "vocabulary", "reads at most")
    )
    kind = facts["kind"]
    article = "An" if kind[0] in "aeiou" else "A"
    origin = f", {facts['origin']}" if "origin" in facts else ""
    about = f"{article} {kind}{origin}."
    return (
        f'<section class="model"><p><b>{escape(model.title)}</b> {escape(about)} '
        f"<code>{escape(facts['class'])}</code></p><dl>{rows}</dl></section>"
    )


@singledispatch
def html_of(result: Result) -> str:
    """Write one result as HTML."""
    raise AssertionError(result)


@html_of.register
def _(result: Note) -> str:
    return f'<p class="note">{escape(result.text)}</p>'


@html_of.register
def _(result: Ranking) -> str:
    rows = "".join(
        f"<li{first(number)}><span>{escape(entry.text)}</span>"
        f'<i><b style="width:{entry.share:.2%}"></b></i><em>{entry.shown}</em></li>'
        for number, entry in enumerate(result.entries)
    )
    longest = max((len(entry.text) for entry in result.entries), default=0)
    sentences = " sentences" if longest > LONGEST_WORD else ""
    return f'<h4>{escape(result.title)}</h4><ol class="ranking{sentences}">{rows}</ol>'


@html_of.register
def _(result: Passage) -> str:
    *pieces, last = result.pieces
    shown = [*pieces, Piece(last.text.rstrip(), last.role)]
    return f'<h4>{escape(result.title)}</h4><p class="passage">{"".join(map(piece, shown))}</p>'


@html_of.register
def _(result: Tokens) -> str:
    chips = "".join(map(chip, result.tokens))
    return f'<h4>{escape(result.title)}</h4><div class="tokens">{chips}</div>'


@html_of.register
def _(result: Heatmap) -> str:
    return f'<h4>{escape(result.title)}</h4><div class="map">{drawing(result)}</div>'


def first(number: int) -> str:
    """Mark the best entry."""
    return ' class="best"' if number == 0 else ""


def piece(part: Piece) -> str:
    """Write a piece of a text: what the model wrote is marked, what it labelled has its label."""
    text = escape(part.text)
    if part.role == "given":
        return text
    if part.role == "new":
        return f"<mark>{text}</mark>"
    return f'<mark class="labelled">{text}<sub>{escape(part.role)}</sub></mark>'


def chip(token: Token) -> str:
    """Write a token with its id; its colour is its probability, if it has one."""
    shade, told = "", ""
    if token.probability is not None:
        shade = f' style="--shade:{100 * (1 - token.probability) ** 2:.0f}%"'
        told = f", {percent(token.probability)}"
    return (
        f'<span class="token"{shade} title="id {token.token_id}{told}">{escape(token.text)}'
        f"<small>{token.token_id}{told}</small></span>"
    )


def drawing(result: Heatmap) -> str:
    """Draw a map as SVG: a row and a column for each token, and a square for each weight."""
    rows, columns = [*map(short, result.rows)], [*map(short, result.columns)]
    side = CHARACTER * max(map(len, rows)) + 10
    above = CHARACTER * max(map(len, columns)) + 10
    width, height = side + CELL * len(columns), above + CELL * len(rows)
    largest = max((weight for row in result.weights for weight in row), default=1) or 1
    names = [
        f'<text x="{side - 6:.0f}" y="{above + CELL * (row + 0.68):.0f}" '
        f'text-anchor="end">{escape(name)}</text>'
        for row, name in enumerate(rows)
    ] + [
        f'<text transform="translate({side + CELL * (column + 0.68):.0f} {above - 6:.0f}) rotate(-90)">'
        f"{escape(name)}</text>"
        for column, name in enumerate(columns)
    ]
    cells = [
        f'<rect x="{side + CELL * column:.0f}" y="{above + CELL * row:.0f}" width="{CELL - 1}" '
        f'height="{CELL - 1}" fill-opacity="{weight / largest:.3f}">'
        f"<title>{escape(result.rows[row])} → {escape(result.columns[column])}: "
        f"{percent(weight)}</title></rect>"
        for row, weights in enumerate(result.weights)
        for column, weight in enumerate(weights)
        if weight >= SHOWN_WEIGHT * largest
    ]
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" style="width:{width:.0f}px" role="img" '
        f'aria-label="{escape(result.title)}">{"".join(names)}{"".join(cells)}</svg>'
        f"<p>The darkest square is {percent(largest)}; point at a square for its weight.</p>"
    )


def short(name: str) -> str:
    """Cut a long token's name."""
    return name if len(name) <= MOST_CHARACTERS else f"{name[: MOST_CHARACTERS - 1]}…"
