"""What scores of prompted models show beside what needs no model, and what demonstrations bring.

A baseline is a number that is known exactly, so a score is judged by its own interval. The gain by
demonstrations is judged by the interval of the difference on the same rows.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ..reporting.verdicts import (
    Verdict,
    about_few_rows,
    difference_in_words,
    outcome_against,
    outcome_of_difference,
    shown,
    with_interval,
)

GUESSES = {"random": "a random answer", "majority": "giving the most frequent answer"}
"""Name of a baseline -> what it does, in the words of a verdict."""

WORDS = {"better": "better than", "worse": "worse than", "unclear": "not measurably better than"}

HELP = {"better": "bring a gain", "worse": "bring a loss", "unclear": "bring nothing measurable"}
HELPS = {"better": "brings a gain", "worse": "brings a loss", "unclear": "brings nothing measurable"}


def verdicts(
    results: Mapping[str, Any], names: Mapping[str, str], *, is_higher_better: bool
) -> Iterator[Verdict]:
    """Judge the best score of every model, and what the most demonstrations that fitted bring.

    Args:
        results: Of the evaluation.
        names: Path or id of a model -> what the report calls it.
        is_higher_better: Whether more of the metric is better.
    """
    if few := about_few_rows(results["items"]):
        yield few
        return
    for model in results["models"]:
        name, scores = names[model["name"]], model["shots"]
        yield from beside_baselines(name, scores, results, is_higher_better=is_higher_better)
        yield from about_demonstrations(name, scores, is_higher_better=is_higher_better)
        for count, fitted in model["fitted"].items():
            if fitted["without"] == fitted["prompts"]:
                yield Verdict(f"{name}, K = {count}: no demonstration fitted.", "unclear")


def beside_baselines(
    name: str, scores: Mapping[str, Any], results: Mapping[str, Any], *, is_higher_better: bool
) -> Iterator[Verdict]:
    """Judge the best score beside the best baseline."""
    choose = max if is_higher_better else min
    best = choose(scores, key=lambda count: scores[count]["mean"])
    own, baselines = scores[best], results["baselines"]
    if not baselines:
        return
    rival = choose(baselines, key=lambda each: baselines[each])
    interval = tuple(own["interval"])
    outcome = outcome_against(baselines[rival], interval, is_higher_better=is_higher_better)
    yield Verdict(
        f"{name}, K = {best}: {WORDS[outcome]} {GUESSES.get(rival, rival)} "
        f"({with_interval(own['mean'], interval)} against {shown(baselines[rival])}).",
        outcome,
    )


def about_demonstrations(
    name: str, scores: Mapping[str, Any], *, is_higher_better: bool
) -> Iterator[Verdict]:
    """Judge the score with the most demonstrations beside that with none, on the same rows."""
    most = max(scores, key=int)
    if (gain := scores[most].get("gain")) is None:
        return
    outcome = outcome_of_difference(tuple(gain), is_higher_better=is_higher_better)
    what = f"one demonstration {HELPS[outcome]}" if most == "1" else f"{most} demonstrations {HELP[outcome]}"
    scored = f"{shown(scores[most]['mean'])} against {shown(scores['0']['mean'])}"
    yield Verdict(f"{name}: {what} over none ({scored}; {difference_in_words(tuple(gain))}).", outcome)
