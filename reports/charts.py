"""The charts of reports besides loss curves: of a task's scores, of students and of prompted models.

Each is written as PNG for Markdown and returned as SVG for a page, in the look of the curves of pretraining.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from .curves import (
    FIRST,
    INK,
    LEAST_SPAN,
    LOOK,
    PAPER,
    QUIET,
    SECOND,
    THIRD,
    Points,
    drawn,
    limits,
    name_lines,
)

SHOWN_CHARACTERS = 30
"""Of a label's name, at most: longer ones would leave no room for the matrix."""

MOST_COUNTED = 20
"""Labels up to which the cells of a chart of confusions have room for their counts."""

LARGEST_MATRIX = 60
"""Labels that a chart of confusions still has room for."""


def draw_learning(
    curves: Mapping[str, Points],
    levels: Mapping[str, float],
    chosen: str,
    title: str,
    file: Path,
    interval: tuple[float, float] | None = None,
) -> str:
    """Draw a score over the epochs, a curve for each run.

    The axis spans at least a fifth of the score's scale, and at least the 95 % interval of the score.

    Args:
        curves: Name of a run -> epochs and scores.
        levels: What is reached without learning, by its name.
        chosen: The run whose model was kept.
        interval: Interval of the score of the model that was kept, if these are the rows that it is of.
    """
    with rc_context(LOOK):
        figure = Figure(figsize=(10, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.grid(axis="y")
        axes.set_title(title, loc="left", fontsize=10.5, color=INK, pad=12)
        axes.set_xlabel("epochs")
        for name, points in curves.items():
            is_chosen = name == chosen
            axes.plot(
                *zip(*points, strict=True),
                color=FIRST if is_chosen else THIRD,
                linewidth=2 if is_chosen else 1,
                marker="o",
                markersize=3.5,
                zorder=3 if is_chosen else 2,
            )
        for level in levels.values():
            axes.axhline(level, color=SECOND, linewidth=1.2, linestyle=(0, (4, 3)))
        if interval is not None:
            axes.axhspan(*interval, color=FIRST, alpha=0.1, linewidth=0)
        width = max(x for points in curves.values() for x, _ in points)
        scores = [y for points in curves.values() for _, y in points]
        axes.set_ylim(*score_limits([*scores, *levels.values(), *(interval or ())]))
        name_lines(axes, {chosen: curves[chosen][-1][1], **levels}, width, {chosen: FIRST}, SECOND)
        axes.set_xlim(0, width)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        return drawn(figure, file)


def score_limits(scores: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis of scores, which are shares of 1 or of 100 (BLEU); others have no scale."""
    drawn = [score for score in scores if np.isfinite(score)]
    if not drawn or min(drawn) < 0:
        return limits(drawn)
    scale = 1.0 if max(drawn) <= 1 else 100.0
    if max(drawn) > scale:
        return limits(drawn)
    return limits(drawn, least_span=LEAST_SPAN * scale, bounds=(0.0, scale))


def draw_confusions(names: Sequence[str], counts: np.ndarray, file: Path) -> str:
    """Draw the share of each label's rows (L, L) that were taken for each label; empty shares stay empty.

    A cell has room for its count up to `MOST_COUNTED` labels. Beyond that, cells are smaller and have a
    colour only.
    """
    is_counted = len(names) <= MOST_COUNTED
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    characters = SHOWN_CHARACTERS if is_counted else SHOWN_CHARACTERS // 2
    shown = [" ".join(name.split())[:characters] for name in names]
    cells = len(names) * (0.42 if len(names) <= 12 else 0.34 if is_counted else 0.17)
    labels = 0.5 + 0.075 * max(map(len, shown))
    with rc_context(LOOK):
        figure = Figure(figsize=(cells + labels + 0.3, cells + 0.75 * labels + 0.3), layout="constrained")
        axes = figure.subplots()
        axes.set(xlim=(-0.5, len(names) - 0.5), ylim=(len(names) - 0.5, -0.5), aspect="equal")
        axes.spines[["top", "right"]].set_visible(True)
        for row, column in np.argwhere(counts > 0):
            place, share = (column - 0.5, row - 0.5), shares[row, column]
            axes.add_patch(Rectangle(place, 1, 1, facecolor=FIRST, alpha=share, linewidth=0))
        size = 9.0 if is_counted else 7.0
        axes.set_xticks(
            range(len(names)), shown, rotation=45, ha="right", rotation_mode="anchor", fontsize=size
        )
        axes.set_yticks(range(len(names)), shown, fontsize=size)
        axes.tick_params(length=0)
        axes.set_xlabel("predicted")
        axes.set_ylabel("right")
        for row, column in np.argwhere(counts > 0) if is_counted else ():
            axes.text(
                column,
                row,
                f"{counts[row, column]:,}",
                ha="center",
                va="center",
                fontsize=8.5 if len(names) <= 12 else 7,
                color=PAPER if shares[row, column] > 0.5 else QUIET,
            )
        return drawn(figure, file)


def draw_comparison(
    scores: Mapping[str, float],
    teacher: float,
    intervals: Mapping[str, Sequence[float]],
    title: str,
    file: Path,
) -> str:
    """Draw a bar for each score with its interval, and the teacher's as a line that all are measured by.

    Args:
        scores: By the names of the students, the one that counts first.
        intervals: Intervals of the scores that have one.
    """
    names = list(scores)
    with rc_context(LOOK):
        drawing = Figure(figsize=(10, 0.9 + 0.5 * len(names)), layout="constrained")
        axes = drawing.subplots()
        axes.set_title(title, loc="left", fontsize=10.5, color=INK, pad=12)
        colours = [FIRST if name == names[0] else THIRD for name in names]
        axes.barh(names, [scores[name] for name in names], color=colours, height=0.55)
        axes.axvline(teacher, color=SECOND, linewidth=1.2, linestyle=(0, (4, 3)))
        for place, name in enumerate(names):
            if name in intervals:
                axes.plot(intervals[name], [place, place], color=INK, linewidth=1.4, marker="|", markersize=7)
            axes.annotate(  # beyond the axis, where no line is
                f"{scores[name]:.3g}",
                (1, place),
                xycoords=axes.get_yaxis_transform(),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
                color=INK,
            )
        axes.set_xlabel(f"teacher: {teacher:.3g} (dashed)")
        axes.invert_yaxis()
        axes.tick_params(length=0)
        return drawn(drawing, file)


def draw_heads(panels: Mapping[str, np.ndarray], unit: str, file: Path) -> str:
    """Draw a number for each head, a panel of layers and heads beside another, on one scale.

    Squares are the darker, the larger the number, which stands in them: 0 below a thousandth of the darkest
    one's. Numbers below 0 are orange and hatched.

    Args:
        panels: Title -> numbers (L, H); NaN where a layer has no such head.
        unit: What the numbers are, in words.
    """
    largest = max(float(np.nanmax(np.abs(values))) for values in panels.values()) or 1.0
    layers, heads = np.max([values.shape for values in panels.values()], axis=0)
    with rc_context(LOOK):
        size = (max(4.6, 0.44 * heads + 1.2) * len(panels), 0.4 * layers + 1.5)
        figure = Figure(figsize=size, layout="constrained")
        for number, (axes, (title, values)) in enumerate(
            zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True)
        ):
            axes.set(xlim=(0.5, heads + 0.5), ylim=(layers + 0.5, 0.5), aspect="equal")
            axes.set_title(title, loc="left", fontsize=10.5, color=INK, pad=10)
            for row, column in np.argwhere(np.isfinite(values)):
                share = float(values[row, column]) / largest
                axes.add_patch(
                    Rectangle(
                        (column + 0.5, row + 0.5),
                        1,
                        1,
                        facecolor=FIRST if share >= 0 else SECOND,
                        alpha=min(abs(share), 1.0),
                        hatch=None if share >= 0 else "///",
                        linewidth=0,
                    )
                )
                axes.text(
                    column + 1,
                    row + 1,
                    f"{values[row, column]:.2g}".replace("e-0", "e-") if abs(share) >= 0.001 else "0",
                    ha="center",
                    va="center",
                    fontsize=6.5,
                    color=PAPER if abs(share) > 0.5 else QUIET,
                )
            axes.set_xticks(range(1, heads + 1))
            axes.set_yticks(range(1, layers + 1))
            axes.tick_params(length=0)
            axes.set_xlabel("head")
            axes.set_ylabel("layer" if number == 0 else "")
        figure.suptitle(unit, x=0.01, ha="left", fontsize=9.5, color=QUIET)
        return drawn(figure, file)


COLOURS = (FIRST, SECOND, THIRD, INK)
"""Of the models, in their order; a fifth has the first one's again, dashed."""


@dataclass(frozen=True)
class Band:
    """A model's `scores` for every K of `shots`, and the ends `low` and `high` of their intervals."""

    shots: Sequence[int]
    scores: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def draw_shots(bands: Mapping[str, Band], levels: Mapping[str, float], title: str, file: Path) -> str:
    """Draw a score against K, a line with its interval for each model; `levels` are what needs no model."""
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
        ends = {name: band.scores[-1] for name, band in bands.items()} | dict(levels)
        colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(bands)}
        name_lines(axes, ends, len(shots) - 0.8, colours, QUIET)
        return drawn(figure, file)


def draw_band(axes: Axes, band: Band, places: Sequence[int], number: int) -> None:
    """Draw one model's line and interval."""
    colour = COLOURS[number % len(COLOURS)]
    axes.fill_between(places, band.low, band.high, color=colour, alpha=0.15, linewidth=0)
    if len(places) == 1:
        axes.vlines(places, band.low, band.high, color=colour, linewidth=1.2)
    style = "-" if number < len(COLOURS) else "--"
    axes.plot(places, band.scores, color=colour, linewidth=2, linestyle=style, marker="o", markersize=4)


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
