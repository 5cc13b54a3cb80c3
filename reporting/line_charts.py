"""Several curves over positions or lengths, with their intervals, in panels beside each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from .charts import drawn
from .curves import FIRST, INK, LOOK, QUIET, SECOND, THIRD, Points, limits

COLOURS = (FIRST, SECOND, THIRD, INK)
STYLES = ("solid", (0, (4, 2)), (0, (1, 1.5)))
"""One after another, when all colours are used."""
MOST_INSIDE = 4
"""Curves whose names fit between the axes; those of more stand below all panels."""


@dataclass(frozen=True)
class LinePanel:
    """One pair of axes."""

    title: str
    x_label: str
    curves: Mapping[str, Points]
    """Name of a curve -> its points, at least one."""
    bands: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Name of a curve -> the interval of each of its points, if it has any."""
    has_pairs: bool = False
    """Whether every two curves belong together: they have one colour, and the second is dashed."""


def draw_lines(panels: Sequence[LinePanel], file: Path) -> str:
    """Draw panels beside one another into a PNG file, and return the same as SVG.

    Panels with more than four curves have the same ones, which are named once, below all panels.
    """
    with rc_context(LOOK):
        names = [*panels[0].curves]
        is_below = len(names) > MOST_INSIDE
        figure = Figure(
            figsize=(5 * len(panels), 4.2 if is_below else 3.6), layout=ConstrainedLayoutEngine(wspace=0.08)
        )
        all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, panel in zip(all_axes, panels, strict=True):
            fill_lines(axes, panel)
            if not is_below:
                axes.legend(frameon=False, labelcolor=QUIET, fontsize=9)
        if is_below:
            lines, _ = all_axes[0].get_legend_handles_labels()
            columns = min(len(names), 3) if len(panels) > 1 else 2
            figure.legend(
                lines, names, loc="outside lower center", ncols=columns,
                frameon=False, labelcolor=QUIET, fontsize=9,
            )  # fmt: skip
        return drawn(figure, file)


def fill_lines(axes: Axes, panel: LinePanel) -> None:
    """Draw one panel."""
    axes.grid(axis="y")
    axes.set_title(panel.title, loc="left", fontsize=10.5, color=INK, pad=12)
    axes.set_xlabel(panel.x_label)
    for number, (name, points) in enumerate(panel.curves.items()):
        colour, style = look_of(number, has_pairs=panel.has_pairs)
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=colour, linestyle=style, linewidth=2, marker="o", markersize=3, label=name)
        if name in panel.bands:
            low, high = zip(*panel.bands[name], strict=True)
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    if all(x == int(x) for points in panel.curves.values() for x, _ in points):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    heights = [y for points in panel.curves.values() for _, y in points]
    ends = [end for band in panel.bands.values() for interval in band for end in interval]
    axes.set_ylim(*limits([*heights, *ends]))


def look_of(number: int, *, has_pairs: bool) -> tuple[str, Any]:
    """Choose the colour and the style of a curve by its number."""
    if has_pairs:
        return COLOURS[number // 2 % len(COLOURS)], STYLES[number % 2]
    return COLOURS[number % len(COLOURS)], STYLES[number // len(COLOURS) % len(STYLES)]
