"""Several curves over positions or lengths, with their intervals, in panels beside each other."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from .charts import COLOURS
from .curves import INK, LOOK, QUIET, Points, drawn, limits

STYLES = ("solid", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
"""One after another, when all colours are used, or for the curves of a pair."""
MARKERS = "os^DvP"
"""One after another: curves are told apart on grey prints, too."""
MOST_INSIDE = 4
"""Curves whose names fit between the axes; if a panel has more, names stand below all panels."""
PANEL_WIDTH, PANEL_HEIGHT, LINE_HEIGHT = 5.0, 3.6, 0.3
"""Of a panel, and of a line of names below, in inches."""


@dataclass(frozen=True)
class LinePanel:
    """One pair of axes."""

    title: str
    """Title of the vertical axis, above it."""
    x_label: str
    """Label of the horizontal axis."""
    curves: Mapping[str, Points]
    """Name of a curve -> its points, at least one."""
    bands: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Name of a curve -> the interval of each of its points, if it has any."""
    has_pairs: bool = False
    """Whether every two curves belong together: they have one colour, and the second is dashed."""


def draw_lines(panels: Sequence[LinePanel], file: Path) -> str:
    """Draw panels beside one another into a PNG file, and return the same as SVG.

    If one has more than four curves, all have the same ones, which are named once, below the panels.
    """
    is_below = any(len(panel.curves) > MOST_INSIDE for panel in panels)
    if is_below and len({tuple(panel.curves) for panel in panels}) > 1:
        raise ValueError(
            f"panels of more than {MOST_INSIDE} curves are named together, but have different curves: "
            + "; ".join(", ".join(panel.curves) for panel in panels)
        )
    width = PANEL_WIDTH * len(panels)
    columns = columns_of(panels[0].curves, width) if is_below else 1
    lines_below = ceil(len(panels[0].curves) / columns) if is_below else 0
    with rc_context(LOOK):
        size = (width, PANEL_HEIGHT + LINE_HEIGHT * lines_below)
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.08))
        all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, panel in zip(all_axes, panels, strict=True):
            fill_lines(axes, panel)
        text: dict[str, Any] = {"frameon": False, "labelcolor": QUIET, "fontsize": 9}
        if is_below:
            lines, names = all_axes[0].get_legend_handles_labels()
            figure.legend(lines, names, loc="outside lower center", ncols=columns, **text)
        else:
            for axes in all_axes:
                axes.legend(**text)
        return drawn(figure, file)


def fill_lines(axes: Axes, panel: LinePanel) -> None:
    """Draw one panel."""
    axes.grid(axis="y")
    axes.set_title(panel.title, loc="left", fontsize=10.5, color=INK, pad=12)
    axes.set_xlabel(panel.x_label)
    for number, (name, points) in enumerate(panel.curves.items()):
        colour, style = look_of(number, has_pairs=panel.has_pairs)
        x, y = zip(*points, strict=True)
        look: dict[str, Any] = {"marker": MARKERS[number % len(MARKERS)], "markersize": 4}
        axes.plot(x, y, color=colour, linestyle=style, linewidth=2, label=name, **look)
        if name in panel.bands:
            low, high = zip(*panel.bands[name], strict=True)
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    if all(x == int(x) for points in panel.curves.values() for x, _ in points):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    heights = [y for points in panel.curves.values() for _, y in points]
    ends = [end for band in panel.bands.values() for interval in band for end in interval]
    axes.set_ylim(*limits([*heights, *ends]))


def columns_of(names: Iterable[str], width: float) -> int:
    """Count the columns of names that fit into a width in inches, at most three."""
    line, letter = 0.6, 0.08
    return max(1, min(3, int(width / (line + letter * max(map(len, names))))))


def look_of(number: int, *, has_pairs: bool) -> tuple[str, Any]:
    """Choose the colour and the style of a curve by its number."""
    if has_pairs:
        pair, member = divmod(number, 2)
        return COLOURS[pair % len(COLOURS)], STYLES[(pair // len(COLOURS) * 2 + member) % len(STYLES)]
    return COLOURS[number % len(COLOURS)], STYLES[number // len(COLOURS) % len(STYLES)]
