"""What a difference between two scores shows, from its 95 % interval: better, worse, or nothing measurable.

Two models that answer the same rows are compared by the interval of their difference on rows drawn for both
(the paired bootstrap; Efron and Tibshirani, 1993, chapter 16). A score that is compared with a number that
is known exactly, such as that of chance, is compared by its own interval. An interval that holds 0, or that
number, its ends included, shows nothing: neither that there is a difference nor that there is none.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

FEWEST_ROWS = 10
"""Rows of which a bootstrap interval says something: that of a single row has no width."""

Outcome = Literal["better", "worse", "unclear"]

Decision = Literal["confirmed", "refuted", "undecided"]
"""What becomes of a claim."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Verdict:
    """One sentence that a reader should remember, and whether it is good news."""

    text: str
    """The sentence."""
    outcome: Outcome | Decision = "unclear"


WORDS = {"better": "better than", "worse": "worse than", "unclear": "not measurably better than"}


def judge(
    other: str,
    own: tuple[float, Interval],
    theirs: float,
    *,
    difference: Interval | None = None,
    subject: str = "",
    metric: str = "",
    is_higher_better: bool = True,
) -> Verdict:
    """Compare a score with another one.

    Args:
        other: What the score is compared with, in words.
        own: The score and its 95 % interval.
        difference: The 95 % interval of how far the score is above the other one, on the same rows; without
            one, the other score is taken to be known exactly.
        subject: What has the score; it goes without saying if left out.
        is_higher_better: Whether more of it is better.

    >>> judge("a random answer", (0.7, (0.6, 0.8)), 0.5, subject="GPT-2").text
    'GPT-2: better than a random answer (0.700 [0.600, 0.800] against 0.500).'
    """
    low, high = (own[1][0] - theirs, own[1][1] - theirs) if difference is None else difference
    outcome = outcome_of_difference((low, high), is_higher_better=is_higher_better)
    details = f"{metric} {with_interval(*own)} against {shown(theirs)}".strip()
    if difference is not None:
        details += f"; {difference_in_words(difference)}"
    said = f"{WORDS[outcome]} {other} ({details})."
    return Verdict(f"{subject}: {said}" if subject else f"{said[0].upper()}{said[1:]}", outcome)


def about_few_rows(number: int, unit: str = "rows") -> Verdict | None:
    """Refuse to judge by too few rows, or what else the bootstrap draws; `None` if there are enough."""
    if number >= FEWEST_ROWS:
        return None
    return Verdict(f"Too few {unit} to compare scores: {number}, where at least {FEWEST_ROWS} are needed.")


def trusted(interval: Interval, number: int) -> list[float] | None:
    """Return an interval as plain data; none if it is not defined, or too little was drawn for one.

    >>> trusted((0.2, 0.9), 12), trusted((1.0, 1.0), 3)
    ([0.2, 0.9], None)
    """
    return [*interval] if number >= FEWEST_ROWS and all(map(math.isfinite, interval)) else None


def missing_interval(number: int, unit: str = "rows") -> str:
    """Say why there is no interval.

    >>> missing_interval(3)
    'fewer than 10 rows'
    """
    return f"fewer than {FEWEST_ROWS} {unit}" if number < FEWEST_ROWS else f"not defined on some {unit} drawn"


def outcome_of_difference(interval: Interval, *, is_higher_better: bool = True) -> Outcome:
    """Judge the interval of a difference of scores, ours less theirs.

    >>> outcome_of_difference((0.01, 0.05)), outcome_of_difference((0.0, 0.05))
    ('better', 'unclear')
    """
    low, high = interval
    if math.isnan(low) or math.isnan(high) or low <= 0 <= high:
        return "unclear"
    return "better" if (low > 0) == is_higher_better else "worse"


def with_interval(score: float, interval: Interval) -> str:
    """Write a score and its interval.

    >>> with_interval(0.5349, (0.491, 0.5801))
    '0.535 [0.491, 0.580]'
    """
    return f"{shown(score)} {in_brackets(interval)}"


def in_brackets(interval: Interval) -> str:
    return f"[{shown(interval[0])}, {shown(interval[1])}]"


def difference_in_words(interval: Interval) -> str:
    """Write the interval of a difference with its signs.

    >>> difference_in_words((-0.012, 0.034))
    'difference [-0.012, +0.034]'
    """
    return "difference [{}, {}]".format(*(f"{'+' if end > 0 else ''}{shown(end)}" for end in interval))


def shown(value: float) -> str:
    """Write a score: three decimals, or one of scores from 10 on, as BLEU has them; no negative zero.

    >>> shown(0.5), shown(41.02), shown(-0.0001)
    ('0.500', '41.0', '0.000')
    """
    digits = 1 if abs(value) >= 10 else 3
    return f"{round(value, digits) + 0.0:.{digits}f}"


def as_data(verdicts: Iterable[Verdict]) -> list[dict[str, str]]:
    return [{"text": verdict.text, "outcome": verdict.outcome} for verdict in verdicts]
