"""Results as plain text, for terminals: bars and maps of characters."""

from collections.abc import Sequence
from functools import singledispatch

from .results import Heatmap, Note, Passage, Piece, Ranking, Result, Tokens, percent

BAR_WIDTH = 24
"""Characters of a bar that stands for a share of 1."""

WIDEST = 60
"""Characters of an answer beside its bar; the rest is cut off."""

SHADES = " ░▒▓█"
"""From no weight to all of the largest one."""


def as_text(results: Sequence[Result]) -> str:
    """Write results below each other."""
    return "\n\n".join(map(text_of, results))


@singledispatch
def text_of(result: Result) -> str:
    """Write one result as text."""
    raise AssertionError(result)


@text_of.register
def _(result: Note) -> str:
    return f"  {result.text}"


@text_of.register
def _(result: Ranking) -> str:
    names = [shortened(entry.text) for entry in result.entries]
    width = max(map(len, names), default=0)
    return "\n".join(
        [f"  {result.title}:"]
        + [
            f"  {entry.shown:>9}  {name:<{width}}  {bar(entry.share)}".rstrip()
            for name, entry in zip(names, result.entries, strict=True)
        ]
    )


@text_of.register
def _(result: Passage) -> str:
    text = "".join(map(marked, result.pieces)).replace("\n", "\n  ")
    return f"  {result.title}:\n  {text}"


@text_of.register
def _(result: Tokens) -> str:
    cells = [token.text for token in result.tokens]
    width = max(map(len, cells), default=0)
    lines = [
        f"  {token.token_id:>7}  {cell:<{width}}"
        + (
            ""
            if token.probability is None
            else f"  {percent(token.probability):>9}  {bar(token.probability)}"
        )
        for token, cell in zip(result.tokens, cells, strict=True)
    ]
    return "\n".join([f"  {result.title}:", *map(str.rstrip, lines)])


@text_of.register
def _(result: Heatmap) -> str:
    width = max(map(len, result.rows), default=0)
    largest = max((weight for row in result.weights for weight in row), default=1) or 1
    head = f"  {'':>{width}}     " + "".join(f"{number:>3}" for number in range(len(result.columns)))
    rows = [
        f"  {name:>{width}} {number:>3} " + "".join(f" {shade(weight / largest) * 2}" for weight in weights)
        for number, (name, weights) in enumerate(zip(result.rows, result.weights, strict=True))
    ]
    return "\n".join([f"  {result.title} (darkest: {percent(largest)}):", head, *map(str.rstrip, rows)])


def marked(piece: Piece) -> str:
    """Put what the model wrote between brackets, and a label behind what it labels."""
    if piece.role == "given":
        return piece.text
    if piece.role == "new":
        core = piece.text.strip()
        return piece.text.replace(core, f"[{core}]", 1) if core else piece.text
    return f"[{piece.text}: {piece.role}]"


def shortened(text: str) -> str:
    """Write an answer in one line that fits beside its bar."""
    line = " ".join(text.split())
    return line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…"


def bar(share: float) -> str:
    """Draw a bar."""
    return "█" * round(share * BAR_WIDTH)


def shade(weight: float) -> str:
    """Draw a weight between 0 and 1.

    >>> "".join(map(shade, (0, 0.2, 0.5, 0.8, 1)))
    ' ░▒▓█'
    """
    return SHADES[min(int(weight * (len(SHADES) - 1) + 0.5), len(SHADES) - 1)]
