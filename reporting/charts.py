"""Two charts of a report: how a score grows while the model learns, and which labels it takes for which.

Each is written as PNG for Markdown and returned as SVG for a page, in the look of the curves of pretraining.
"""

from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .curves import (
    FIRST,
    INK,
    LABEL_DISTANCE,
    LOOK,
    QUIET,
    SECOND,
    THIRD,
    Points,
    apart,
    for_page,
)

SHOWN_CHARACTERS = 30
"""Of a label's name, at most: longer ones would leave no room for the matrix."""

LARGEST_MATRIX = 30
"""Labels that a chart of confusions still has room for."""


def draw_learning(
    curves: Mapping[str, Points], levels: Mapping[str, float], chosen: str, title: str, file: Path
) -> str:
    """Draw a score over the epochs, a curve for each run.

    Args:
        curves: Name of a run -> epochs and scores.
        levels: What is reached without learning, by its name.
        chosen: The run whose model was kept.
        title: What stands above.
        file: The PNG to write.
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
        width = max(x for points in curves.values() for x, _ in points)
        bottom, top = axes.get_ylim()
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


def draw_confusions(names: Sequence[str], counts: np.ndarray, file: Path) -> str:
    """Draw the share of each label's rows (L, L) that were taken for each label; empty shares stay empty."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = 1.9 + 0.42 * len(names)
    shown = [" ".join(name.split())[:SHOWN_CHARACTERS] for name in names]
    with rc_context(LOOK):
        figure = Figure(figsize=(min(size + 1.6, 10), min(size, 8.5)), layout="constrained")
        axes = figure.subplots()
        axes.imshow(
            shares, cmap=LinearSegmentedColormap.from_list("shares", ["white", FIRST]), vmin=0, vmax=1
        )
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xticks(range(len(names)), shown, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(names)), shown)
        axes.tick_params(length=0)
        axes.set_xlabel("predicted")
        axes.set_ylabel("right")
        for row, column in np.argwhere(counts > 0):
            axes.text(
                column,
                row,
                f"{counts[row, column]:,}",
                ha="center",
                va="center",
                fontsize=8.5 if len(names) < 12 else 6.5,
                color="white" if shares[row, column] > 0.5 else QUIET,
            )
        return drawn(figure, file)


def drawn(figure: Figure, file: Path) -> str:
    """Write a figure as PNG and return it as SVG."""
    figure.savefig(file, dpi=160, facecolor="white")
    svg = StringIO()
    figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return for_page(svg.getvalue(), prefix=file.stem)
