"""Loss curves: drawn once by matplotlib, written as PNG for Markdown and as SVG for a page.

The SVG names its colours by the page's variables, so that it follows light and dark settings.

Axes do not magnify noise: an axis spans at least `LEAST_SPAN` of the largest value on it, so that what
changes by less than this looks as flat as it is (`limits`).
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from ..data.files.atomic_writes import written_beside

COLOURS = {
    "--first": "#1f5fbf",
    "--second": "#c4581d",
    "--third": "#8a8f98",
    "--ink": "#1f2328",
    "--quiet": "#6b7078",
    "--line": "#e4e1da",
    "--paper": "#fdfcfa",
}
"""Names of the page's colours, and their values on white."""

FIRST, SECOND, THIRD, INK, QUIET, LINE, PAPER = COLOURS.values()

LOOK: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.edgecolor": LINE,
    "axes.labelcolor": QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "text.color": INK,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "svg.fonttype": "none",
    "svg.hashsalt": "tercet",  # the same drawing has the same names of shapes
    "text.parse_math": False,  # labels are other people's: their dollars are no formulas
}

LABEL_DISTANCE = 0.075
"""Height of a line of text, as a share of an axis."""

LEAST_SPAN = 0.2
"""What an axis spans at least, as a share of the largest value on it."""

MARGIN = 0.05
"""Room above and below what is drawn, as a share of what is spanned."""

Points = Sequence[tuple[float, float]]
"""Pairs of tokens read, in millions, and a value."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes below a title: `training` and `held_out` values at the steps of a run."""

    title: str
    training: Points
    held_out: Points
    levels: Mapping[str, float] = field(default_factory=dict)
    """What is reached without learning, by its name."""

    @property
    def has_line(self) -> bool:
        """Whether there is more to draw than points."""
        return bool(self.training and self.held_out) and max(len(self.training), len(self.held_out)) > 1


def panel_of(
    log: Sequence[Mapping[str, Any]],
    term: str,
    title: str,
    *,
    untrained: Points = (),
    levels: Mapping[str, float] | None = None,
) -> Panel:
    """Make the panel of a term's loss from a run's log.

    Args:
        log: The records of steps and evaluations, of which at least one each has a finite loss.
        term: As the objective names it.
        untrained: Where the held-out curve begins, if that was measured.
        levels: What is reached without learning.
    """
    name = f"{term}/loss"
    return Panel(title, points(log, name), [*untrained, *points(log, f"evaluation/{name}")], levels or {})


def points(log: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """Find a value in a log's records, over the tokens read; those that are not finite are left out."""
    return [(record["tokens"] / 1e6, record[name]) for record in log if record.get(name) is not None]


def draw_log(log: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw the loss of every term that a log tells of, into a PNG file; none of a term with points alone."""
    names = {name for record in log for name in record if name.endswith("/loss")}
    terms = sorted(name.removesuffix("/loss") for name in names if f"evaluation/{name}" in names)
    panels = [panel_of(log, term, f"{term}: loss in nats") for term in terms]
    if lines := [panel for panel in panels if panel.has_line]:
        with rc_context(LOOK):
            write_png(figure_of(lines), file)


def draw(panels: Sequence[Panel], file: Path) -> str:
    """Draw panels beside one another into a PNG file, and return the same as SVG."""
    with rc_context(LOOK):
        return drawn(figure_of(panels), file)


def figure_of(panels: Sequence[Panel]) -> Figure:
    """Draw panels beside one another."""
    figure = Figure(figsize=(10, 3.6), layout=ConstrainedLayoutEngine(wspace=0.08))
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        fill(axes, panel)
    return figure


def write_png(figure: Figure, file: Path) -> None:
    with written_beside(file) as partial:
        figure.savefig(partial, format="png", dpi=160, facecolor="white")


def drawn(figure: Figure, file: Path) -> str:
    """Write a figure as PNG and return it as SVG."""
    write_png(figure, file)
    svg = StringIO()
    figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return for_page(svg.getvalue(), prefix=file.stem)


def fill(axes: Axes, panel: Panel) -> None:
    """Draw one panel; each curve is named where it ends, each level on its line."""
    axes.grid(axis="y")
    axes.set_title(panel.title, loc="left", fontsize=10.5, color=INK, pad=12)
    axes.set_xlabel("tokens read, in millions")
    width = max(x for x, _ in [*panel.training, *panel.held_out])
    axes.plot(*zip(*panel.training, strict=True), color=THIRD, linewidth=1, label="training")
    axes.plot(
        *zip(*panel.held_out, strict=True),
        color=FIRST,
        linewidth=2,
        marker="o",
        markersize=3.5,
        label="held out",
    )
    for level in panel.levels.values():
        axes.axhline(level, color=SECOND, linewidth=1.2, linestyle=(0, (4, 3)))
    labels = {"held out": panel.held_out[-1][1], **panel.levels}
    curves = [value for _, value in [*panel.training, *panel.held_out]]
    axes.set_ylim(*limits([*curves, *panel.levels.values()]))
    name_lines(axes, labels, width, {"held out": FIRST}, SECOND, "{} {:.2f}")
    axes.set_xlim(0, width)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.legend(frameon=False, loc="upper right", labelcolor=QUIET, fontsize=9)


def name_lines(
    axes: Axes,
    values: Mapping[str, float],
    right: float,
    colours: Mapping[str, str],
    other: str,
    form: str = "{}: {:.3g}",
) -> None:
    """Name lines where they end, one apart from another; the axes have their limits.

    Args:
        values: Where they end, by their names.
        right: The end of the horizontal axis.
        colours: Colours of some names.
        other: Colour of all others.
        form: Format of a name and its value.
    """
    bottom, top = axes.get_ylim()
    for name, place in apart(values, distance=LABEL_DISTANCE * (top - bottom)).items():
        axes.annotate(
            form.format(name, values[name]),
            (right, place),
            xytext=(7, 0),
            textcoords="offset points",
            color=colours.get(name, other),
            va="center",
            annotation_clip=False,
        )


def limits(
    values: Iterable[float], *, least_span: float | None = None, bounds: tuple[float, float] | None = None
) -> tuple[float, float]:
    """Return the ends of an axis on which a small change looks small.

    The axis spans what is drawn, but at least a span around its middle, and a margin on both sides.

    Args:
        least_span: What is spanned at least; by default, `LEAST_SPAN` of the largest absolute value.
        bounds: Values that a score cannot leave: the axis ends there, but for the margin.
    """
    drawn = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(drawn), max(drawn)
    least = LEAST_SPAN * (max(abs(low), abs(high)) or 1.0) if least_span is None else least_span
    if high - low < least:
        middle = (low + high) / 2
        low, high = middle - least / 2, middle + least / 2
        if bounds is not None:  # moved, not cut: the span stays
            shift = max(bounds[0] - low, 0.0) - max(high - bounds[1], 0.0)
            low, high = low + shift, high + shift
    room = MARGIN * (high - low)
    return low - room, high + room


def apart(places: Mapping[str, float], distance: float) -> dict[str, float]:
    """Move labels up, from the lowest on, until none stands closer to another than `distance`."""
    moved: dict[str, float] = {}
    lowest = float("-inf")
    for name, place in sorted(places.items(), key=lambda item: item[1]):
        lowest = moved[name] = max(place, lowest + distance)
    return moved


def for_page(svg: str, prefix: str) -> str:
    """Make an SVG a part of a page: without its head, in the page's colours, its ids apart from others'."""
    svg = svg[svg.index("<svg") :]
    opening = r'<svg [^>]*viewBox="([^" ]* [^" ]* ([^" ]*) [^"]*)"[^>]*>'
    svg = re.sub(opening, r'<svg viewBox="\1" style="--width:\2">', svg, count=1)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\1{prefix}-", svg)
    for name, value in COLOURS.items():
        svg = svg.replace(value, f"var({name})")
    return svg.replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans'")
