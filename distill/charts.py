"""The chart of a distillation's report: the students' scores beside the teacher's."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from ..reporting.charts import drawn
from ..reporting.curves import FIRST, INK, LOOK, SECOND, THIRD


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
        teacher: Its score.
        intervals: Of the scores that have one.
        title: What stands above.
        file: The PNG to write.
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
