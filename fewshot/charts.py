"""Two charts of a report: scores against the number of demonstrations, and accuracy against confidence.

Each is written as PNG for Markdown and returned as SVG for a page, in the look of the curves of pretraining.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..reporting.charts import drawn
from ..reporting.curves import FIRST, INK, LABEL_DISTANCE, LOOK, QUIET, SECOND, THIRD, apart

COLOURS = (FIRST, SECOND, THIRD, INK)
"""Of the models, in their order; a fifth has the first one's again, dashed."""


@dataclass(frozen=True)
class Band:
    """A model's score for every K."""

    shots: Sequence[int]
    scores: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def draw_shots(bands: Mapping[str, Band], levels: Mapping[str, float], title: str, file: Path) -> str:
    """Draw a score against K, a line with its interval for each model.

    Args:
        bands: By the models' names.
        levels: What needs no model, by its name.
        title: What stands above.
        file: The PNG to write.
    """
    shots = sorted({count for band in bands.values() for count in band.shots})
    places = {count: place for place, count in enumerate(shots)}
    with rc_context(LOOK):
        figure = Figure(figsize=(10, 3.8), layout="constrained")
        axes = figure.subplots()
        axes.grid(axis="y")
        axes.set_title(title, loc="left", fontsize=10.5, color=INK, pad=12)
        axes.set_xlabel("demonstrations in the prompt")
        for number, band in enumerate(bands.values()):
            draw_band(axes, band, [places[count] for count in band.shots], number)
        for level in levels.values():
            axes.axhline(level, color=QUIET, linewidth=1.1, linestyle=(0, (4, 3)))
        axes.set_xticks(range(len(shots)), [str(count) for count in shots])
        axes.set_xlim(-0.2, len(shots) - 0.8)
        name_lines(axes, bands, levels, len(shots) - 0.8)
        return drawn(figure, file)


def draw_band(axes: Axes, band: Band, places: Sequence[int], number: int) -> None:
    """Draw one model's line and interval."""
    colour = COLOURS[number % len(COLOURS)]
    axes.fill_between(places, band.low, band.high, color=colour, alpha=0.15, linewidth=0)
    if len(places) == 1:
        axes.vlines(places, band.low, band.high, color=colour, linewidth=1.2)
    style = "-" if number < len(COLOURS) else "--"
    axes.plot(places, band.scores, color=colour, linewidth=2, linestyle=style, marker="o", markersize=4)


def name_lines(axes: Axes, bands: Mapping[str, Band], levels: Mapping[str, float], right: float) -> None:
    """Name each line where it ends, one apart from another."""
    values = {name: band.scores[-1] for name, band in bands.items()} | dict(levels)
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(bands)}
    bottom, top = axes.get_ylim()
    for name, place in apart(values, distance=LABEL_DISTANCE * (top - bottom)).items():
        axes.annotate(
            f"{name}: {values[name]:.3g}",
            (right, place),
            xytext=(7, 0),
            textcoords="offset points",
            color=colours.get(name, QUIET),
            va="center",
            annotation_clip=False,
        )


def draw_reliability(tables: Mapping[str, Mapping[str, Any]], file: Path) -> str:
    """Draw accuracy against confidence, a line for each model (`reliability`)."""
    with rc_context(LOOK):
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.subplots()
        axes.grid()
        axes.plot([0, 1], [0, 1], color=QUIET, linewidth=1, linestyle=(0, (4, 3)))
        for number, (name, table) in enumerate(tables.items()):
            total = sum(table["count"])
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(table["confidence"], table["accuracy"], color=colour, linewidth=1.4, label=name)
            sizes = [16 + 200 * count / total for count in table["count"]]
            axes.scatter(table["confidence"], table["accuracy"], sizes, color=colour, alpha=0.6, linewidth=0)
        axes.set_xlabel("confidence")
        axes.set_ylabel("accuracy")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.legend(frameon=False, loc="upper left", labelcolor=QUIET, fontsize=9)
        return drawn(figure, file)
