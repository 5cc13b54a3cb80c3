"""What a fine-tuned model's score shows beside the baselines, a sentence each.

All of them answered the same rows, so the 95 % interval of a difference is that of the paired bootstrap.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..metrics.bootstrap import percentile_interval
from ..reporting.verdicts import (
    Verdict,
    about_few_rows,
    difference_in_words,
    outcome_against,
    outcome_of_difference,
    shown,
    with_interval,
)
from ..storage.scores import METRICS
from .task import Task

UNTRAINED = "untrained"
"""Name of the baseline that is the model before the run, where some of its weights are random: a new head."""

BEFORE = "before this run"
"""Name of the baseline that is the model before the run, where all of its weights were trained."""

BAG_OF_WORDS = "bag of words"
"""Name of the baseline that counts words."""

GUESSES = {
    "majority class": "guessing the most frequent label",
    "mean": "guessing the mean",
    "first sentence": "repeating the first sentence",
    "most frequent answer": "giving the most frequent answer",
    "most frequent documents": "the same documents for every query",
    "frequency of tokens": "predicting tokens by their frequency",
    BAG_OF_WORDS: "a bag of words (logistic regression on TF-IDF weights)",
    UNTRAINED: "the same model before fine-tuning",
    BEFORE: "the same model before this run",
}
"""Name of a baseline -> what it does, in the words of a verdict."""

WORDS = {"better": "Better than", "worse": "Worse than", "unclear": "Not measurably better than"}


def compared(own: np.ndarray, others: Mapping[str, np.ndarray]) -> dict[str, dict[str, list[float]]]:
    """Return each baseline's interval, and that of how far the model is above it, from drawn scores, (R,)."""
    return {
        name: {
            "interval": list(percentile_interval(scores)),
            "difference": list(percentile_interval(own - scores)),
        }
        for name, scores in others.items()
    }


def verdicts(task: Task, summary: Mapping[str, Any]) -> Iterator[Verdict]:
    """Compare the kept model with what needs no learning, with words alone, and with itself before.

    The last is left out where it goes without saying: a random head is worse than what beats a guess.
    """
    criterion, split = summary["criterion"], summary["split"]
    if few := about_few_rows(summary["rows"][split]):
        yield few
        return
    score = summary["seeds"][str(summary["best_seed"])][split][criterion]
    told: list[Verdict] = []
    for name, found in summary["compared"].items():
        theirs = summary["baselines"][name].get(criterion)
        verdict = compare(task, name, (score, tuple(summary["interval"])), theirs, found)
        goes_without_saying = {each.outcome for each in (*told, verdict)} == {"better"}
        if name != UNTRAINED or not goes_without_saying:
            told.append(verdict)
    yield from told


def compare(
    task: Task,
    name: str,
    own: tuple[float, tuple[float, float]],
    theirs: float | None,
    found: Mapping[str, Any],
) -> Verdict:
    """Compare the score, with its interval, with a baseline's; one without a score does not correlate."""
    criterion, difference = task.metric_for_best_model, tuple(found["difference"])
    is_higher_better = task.metrics[criterion]
    if theirs is None or not np.isfinite([theirs, *difference]).all():
        outcome = outcome_against(0.0, own[1], is_higher_better=is_higher_better)
        details = f"{METRICS[criterion]} {with_interval(*own)} against 0"
    else:
        outcome = outcome_of_difference(difference, is_higher_better=is_higher_better)
        details = (
            f"{METRICS[criterion]} {with_interval(*own)} against {shown(theirs)}; "
            f"{difference_in_words(difference)}"
        )
    return Verdict(f"{WORDS[outcome]} {GUESSES[name]} ({details}).", outcome)
