"""The rule by which runs decide about a claim.

The interval of a value is that of its mean over seeds, at 95 %, by Student's t distribution; of a value that
is the same with every seed it is that value. A value is confirmed if its whole interval lies within the
claim's bounds, refuted if none of it does, and undecided otherwise. A claim is confirmed if all of its values
are, and refuted if one is.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import t as student

from tercet.reports.verdicts import Decision

from .study import Bounds, Study

CONFIDENCE = 0.95

FEWEST_SEEDS = 2
"""Without a second seed nothing is known about the spread of a value."""


def interval_of(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of values, and the ends of its interval.

    Raises:
        ValueError: There are too few values.

    >>> [round(end, 3) for end in interval_of([1.0, 2.0, 3.0])]
    [2.0, -0.484, 4.484]
    """
    if len(values) < FEWEST_SEEDS:
        raise ValueError(f"an interval needs {FEWEST_SEEDS} seeds or more, not {len(values)}: choose more")
    mean = math.fsum(values) / len(values)
    if max(values) == min(values):  # also where the mean rounds
        return values[0], values[0], values[0]
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    half = float(student.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * deviation / math.sqrt(len(values))
    return mean, mean - half, mean + half


def judge_value(values: Sequence[float], bounds: Bounds) -> Decision:
    """Judge one value; one that is no number decides nothing.

    >>> judge_value([1.0, 1.1, 0.9], Bounds(0, 2)), judge_value([1.0, 1.1, 0.9], Bounds(1, 2))
    ('confirmed', 'undecided')
    >>> judge_value([1.0, 1.1, 0.9], Bounds(2, 3))
    'refuted'
    """
    _, low, high = interval_of(values)
    if bounds.low <= low and high <= bounds.high:
        return "confirmed"
    return "refuted" if high < bounds.low or low > bounds.high else "undecided"


def judge(study: Study, values: Mapping[str, Sequence[float]]) -> Decision:
    """Judge a claim by the values of all seeds."""
    found = {judge_value(values[name], bounds) for name, bounds in study.expected.items()}
    if found == {"confirmed"}:
        return "confirmed"
    return "refuted" if "refuted" in found else "undecided"


def judged(study: Study, result: Mapping[str, Any]) -> Decision:
    """Judge a claim by what `run_study` has returned."""
    return judge(study, result["values"])
