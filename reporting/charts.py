"""Two charts of a report: how a score grows while the model learns, and which labels it takes for which.

Each is written as PNG for Markdown and returned as SVG for a page, in the look of the curves of pretraining.
"""

from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from .curves import (
    FIRST,
    INK,
    LABEL_DISTANCE,
    LEAST_SPAN,
    LOOK,
    PAPER,
    QUIET,
    SECOND,
    THIRD,
    Points,
    apart,
    for_page,
    limits,
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
        title: What stands above.
        file: The PNG to write.
        interval: Of the score of the model that was kept, if these are the rows that it is of.
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
        bottom, top = score_limits([*scores, *levels.values(), *(interval or ())])
        axes.set_ylim(bottom, top)
        labels = {chosen: curves[chosen][-1][1], **levels}
        for name, place in apart(labels, distance=LABEL_DISTANCE * (top - bottom)).items():
            axes.annotate(
                f"{name}: {labels[name]:.3g}",
                (width, place),
                xytext=(7, 0),
                textcoords="offset points",
                color=FIRST if name == chosen else SECOND,
                va="center",
                annotation_clip=False,
            )
        axes.set_xlim(0, width)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        return drawn(figure, file)


def score_limits(scores: Sequence[float]) -> tuple[float, float]:
    """Give the ends of an axis of scores, which are shares of 1, or of 100 as BLEU; others have no scale."""
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


def drawn(figure: Figure, file: Path) -> str:
    """Write a figure as PNG and return it as SVG."""
    figure.savefig(file, dpi=160, facecolor="white")
    svg = StringIO()
    figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return for_page(svg.getvalue(), prefix=file.stem)
