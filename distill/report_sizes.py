"""The part of a report that tells of size and speed, in both ways of saying what is saved."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..reporting.blocks import Table
from .output import STUDENT, TEACHER

PUBLISHED = {
    "kept": 77.0 / 79.5,
    "parameters": 66 / 110,
    "time": 410 / 668,
}
"""DistilBERT over BERT-base (Sanh et al., 2019): mean of GLUE (table 1), parameters in millions, and seconds
for STS-B's development set with batches of one on a CPU (table 3)."""


def times_of(summary: Mapping[str, Any]) -> dict[str, float]:
    """Give the student's time over the teacher's for one row, and for a row of 32."""
    own, theirs = summary["speeds"][STUDENT], summary["speeds"][TEACHER]
    return {
        "one alone": own["latency"] / theirs["latency"],
        "32 at once": theirs["throughput"] / own["throughput"],
    }


def size_table(summary: Mapping[str, Any]) -> Table:
    """Put sizes and times side by side, and both ways of saying what is saved."""
    sizes = summary["sizes"]
    labels = {"parameters": "parameters", "inner_parameters": "parameters in layers", "disk": "bytes on disk"}
    rows = [
        [
            label,
            *(f"{sizes[name][key]:,}" for name in (TEACHER, STUDENT)),
            f"{1 - share_of(sizes, key):.0%} fewer",
            "",
        ]
        for key, label in labels.items()
    ]
    if "speeds" in summary:
        rows += speed_rows(summary["speeds"])
    rows += [
        [
            "DistilBERT, published: million parameters",
            "110",
            "66",
            f"{1 - PUBLISHED['parameters']:.0%} fewer",
            "",
        ],
        ["DistilBERT, published: seconds", "668", "410", *saved_time(PUBLISHED["time"])],
    ]
    return Table(["", "teacher", "student", "saved", "in other words"], rows)


def speed_rows(speeds: Mapping[str, Mapping[str, float]]) -> Iterator[list[str]]:
    """Write latency, throughput and memory."""
    own, theirs = speeds[STUDENT], speeds[TEACHER]
    pairs = {
        "seconds for one alone": (theirs["latency"], own["latency"]),
        "seconds for one, 32 at once": (1 / theirs["throughput"], 1 / own["throughput"]),
    }
    for label, (before, after) in pairs.items():
        yield [label, f"{before:.4g}", f"{after:.4g}", *saved_time(after / before)]
    before, after = theirs["memory"], own["memory"]
    share = after / before if before > 0 else float("nan")
    yield ["memory, MiB", f"{before:,.0f}", f"{after:,.0f}", saved(share), ""]


def saved_time(share: float) -> list[str]:
    """Say in both ways how much faster something is that takes a share of the time."""
    return [f"{saved(share)} time", f"{1 / share:.2f}x as fast"]


def saved(share: float) -> str:
    """Say how much less, or more, something is of which a share is left.

    >>> saved(0.61), saved(1.1)
    ('39% less', '10% more')
    """
    return f"{1 - share:.0%} less" if share <= 1 else f"{share - 1:.0%} more"


def about_speed(summary: Mapping[str, Any]) -> str:
    """Say how it was measured, and why both ways of saying it are given."""
    measured = (
        "Times are medians, teacher and student in turns, in float32. "
        if "speeds" in summary
        else "Times were not measured (report.speed is false). "
    )
    return measured + (
        "Less time and faster are the same fact: DistilBERT's 39 % less time is 1.63 times the speed, "
        "published as 60 % faster."
    )


def share_of(sizes: Mapping[str, Mapping[str, int]], key: str) -> float:
    """Give what is left of the teacher's size."""
    return sizes[STUDENT][key] / sizes[TEACHER][key]


def less(own: float, teachers: float) -> str:
    """Write how much less something is."""
    return f"{1 - own / teachers:.0%}"
