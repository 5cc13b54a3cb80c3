"""How time and memory grow with the length of a text: slopes, curves, and the length from which blocks pay.

A slope is a power of the length: 1 is linear growth, 2 quadratic.
"""

from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from tercet.reporting.curves import FIRST, INK, LOOK, QUIET, SECOND, THIRD

GROWTH_HEAD = """\
| work | side | from | to | time | slope | memory | slope |
|---|---|--:|--:|--:|--:|--:|--:|"""

LOOKS = {
    "tercet": (FIRST, "-"),
    "tercet-bf16": (FIRST, "--"),
    "tercet-full": (THIRD, "-"),
    "stock": (SECOND, "-"),
    "stock-bf16": (SECOND, "--"),
    "stock-full": (SECOND, ":"),
}
"""Colour and line of each side."""

QUANTITIES = {"median": "seconds", "memory_mib": "MiB"}
"""What grows, and its unit."""


def curve(cases: list[dict[str, Any]], work: str, side: str, quantity: str) -> dict[int, float]:
    """Give what a side needs, by length, from the shortest text to the longest."""
    found = {
        case["case"]["length"]: case["sides"][side][quantity]
        for case in cases
        if case["work"] == work and side in case["sides"]
    }
    return dict(sorted(found.items()))


def slope(values: dict[int, float], begin: int, end: int) -> float:
    """Return the power of the length by which a quantity grows between two lengths."""
    return log(values[end] / values[begin]) / log(end / begin)


def growth_rows(cases: list[dict[str, Any]], work: str) -> list[str]:
    """Write how much more each side needs from each length to the next, and from 4,096 to the longest."""
    rows = []
    for side in dict.fromkeys(name for case in cases for name in case["sides"]):
        quantities = [curve(cases, work, side, quantity) for quantity in QUANTITIES]
        lengths = list(quantities[0])
        spans = list(pairwise(lengths))
        if 4096 in lengths[:-2]:
            spans.append((4096, lengths[-1]))
        for begin, end in spans:
            cells = [work, side, f"{begin:,}", f"{end:,}"]
            for values in quantities:
                cells += [f"{values[end] / values[begin]:.2f}x", f"{slope(values, begin, end):.2f}"]
            rows.append(f"| {' | '.join(cells)} |")
    return rows


def pays_from(cases: list[dict[str, Any]], work: str) -> str:
    """Describe from which length on blocks are faster than full attention, of those that were measured."""
    sparse, full = (curve(cases, work, side, "median") for side in ("tercet", "tercet-full"))
    slower = [length for length in full if sparse[length] >= full[length]]
    faster = [length for length in full if length > max(slower, default=0)]
    if not faster:
        return "tercet is nowhere faster than tercet-full"
    ratios = ", ".join(f"{full[length] / sparse[length]:.2f}x at {length:,}" for length in faster)
    return f"tercet is faster than tercet-full from {faster[0]:,} tokens ({ratios})"


def draw(cases: list[dict[str, Any]], file: Path) -> None:
    """Draw time and memory over the length into a PNG file, on logarithmic axes."""
    works = list(dict.fromkeys(case["work"] for case in cases))
    with rc_context(LOOK):
        figure = Figure(figsize=(10, 3.6 * len(works)), layout="constrained")
        panels = figure.subplots(len(works), len(QUANTITIES), squeeze=False)
        for row, work in zip(panels, works, strict=True):
            for axes, (quantity, unit) in zip(row, QUANTITIES.items(), strict=True):
                axes.set_title(f"{work}: {unit} over tokens", loc="left", fontsize=10.5, color=INK)
                for side, (colour, line) in LOOKS.items():
                    values = curve(cases, work, side, quantity)
                    axes.plot(list(values), list(values.values()), line, marker="o", color=colour, label=side)
                axes.set(xscale="log", yscale="log")
                axes.set_xticks(sorted({case["case"]["length"] for case in cases}), minor=False)
                axes.minorticks_off()
                axes.xaxis.set_major_formatter("{x:,.0f}")
                axes.yaxis.set_major_formatter("{x:,g}")
                axes.grid()
        panels[0, 0].legend(frameon=False, labelcolor=QUIET, fontsize=9)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=130, facecolor="white")
