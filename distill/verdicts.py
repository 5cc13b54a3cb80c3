"""What a student's score shows beside its teacher's and its controls', a sentence each.

All of them answered the same rows. Beside the teacher counts the interval of the share that is kept, beside
the same student without a teacher that of the difference.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ..reporting.verdicts import (
    Outcome,
    Verdict,
    about_few_rows,
    difference_in_words,
    outcome_of_difference,
    shown,
)
from .output import GENERAL, RANDOM, STUDENT, TASK, TEACHER, WITHOUT_TEACHER
from .report import kept_of, score_name

CONTROLS = {
    WITHOUT_TEACHER: {
        "better": "The teacher helped: the student is better than the same student without one",
        "worse": "The teacher did harm: the student is worse than the same student without one",
        "unclear": "The teacher brought nothing measurable over the same student without one",
    },
    RANDOM: {
        "better": "The teacher's layers helped: the student is better than one from random weights",
        "worse": "The teacher's layers did harm: the student is worse than one from random weights",
        "unclear": "The teacher's layers brought nothing measurable over random weights",
    },
}
"""Name of a control -> outcome of the comparison with it -> what this says."""


def verdicts(summary: Mapping[str, Any]) -> Iterator[Verdict]:
    """Compare the student with its teacher, and with the same student without the teacher's help."""
    told = summary[TASK] if TASK in summary else summary[GENERAL]
    if TASK in summary and (few := about_few_rows(told["rows"][told["split"]])):
        yield few
        return
    kept = kept_of(summary)
    own, teacher = kept[STUDENT], kept[TEACHER]["score"]
    name = score_name(summary)
    if own["interval"] is not None:
        yield about_teacher(own, f"{name}: {shown(own['score'])} against {shown(teacher)}")
    for control, lead in told["leads"].items():
        outcome: Outcome = "unclear"
        if lead is not None:
            outcome = outcome_of_difference(tuple(lead), is_higher_better=told.get("is_higher_better", True))
        scores = [each["score"] for each in (own, kept[control])]
        if lead is None or None in scores:
            continue
        details = f"{' against '.join(map(shown, scores))}; {difference_in_words(tuple(lead))}"
        yield Verdict(f"{CONTROLS[control][outcome]} ({details}).", outcome)


def about_teacher(own: Mapping[str, Any], scores: str) -> Verdict:
    """Judge the share of the teacher's score that is kept: all of it is 1."""
    low, high = own["interval"]
    share = f"{own['share']:.1%} [{low:.1%}, {high:.1%}]"
    outcome = outcome_of_difference((low - 1, high - 1))
    if outcome == "worse":
        return Verdict(f"Keeps {share} of the teacher's score: measurably worse ({scores}).", outcome)
    if outcome == "better":
        return Verdict(f"Exceeds the teacher's score: {share} of it ({scores}).", outcome)
    return Verdict(f"Not measurably worse than the teacher: {share} of its score ({scores}).", outcome)
