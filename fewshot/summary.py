"""What the conditions of a model have come to: mean, spread and interval for every K, and of some items."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..metrics.bootstrap import deviation
from ..training.tracking import as_json
from .contamination import Contamination
from .evaluation import Outcome
from .items import is_choosing
from .judging import by_group, criterion_of, interval_of, reliability, scores_of, way_of
from .recipe import FewShotRecipe
from .subject import Subject
from .task_recipes import Common, MinimalPairRecipe


def summarize_model(
    recipe: FewShotRecipe,
    subject: Subject,
    weights: tuple[str, str],
    outcomes: Sequence[Outcome],
    contamination: Contamination | None,
) -> dict[str, Any]:
    """Say what a model has answered.

    Args:
        recipe: What was asked.
        subject: The model.
        weights: Hash of its weights before, and after.
        outcomes: Of all conditions.
        contamination: Which items stand in a corpus, if that was looked for.

    Raises:
        ValueError: Demonstrations were asked for throughout, and not one fits.
    """
    shots = sorted({outcome.condition.shots for outcome in outcomes})
    by_shots = {count: [each for each in outcomes if each.condition.shots == count] for count in shots}
    of_shots = {
        str(count): summarize_shots(recipe, own, contamination)
        for count, own in by_shots.items()
        if any(outcome.counted for outcome in own)
    }
    if not of_shots:
        raise ValueError(
            f"no demonstration fits into any prompt of {subject.name}, which reads {subject.max_length:,} "
            "tokens: add 0 to asking.shots, shorten the templates, or ask a model that reads more"
        )
    return {
        "name": subject.name,
        "member": subject.member,
        "class": type(subject.model).__name__,
        "parameters": sum(parameter.numel() for parameter in subject.model.parameters()),
        "weights_sha256": weights[0],
        "weights_unchanged": weights[0] == weights[1],
        "shots": of_shots,
        "fitted": {str(count): what_fitted(own) for count, own in by_shots.items() if count},
    }


def what_fitted(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Say of one K how many demonstrations stood in the prompts that count, and how many prompts had none."""
    num_shown = [len(record["demonstrations"]) for outcome in outcomes for record in outcome.counted]
    num_prompts = sum(len(outcome.records) for outcome in outcomes)
    return {
        "prompts": num_prompts,
        "without": num_prompts - len(num_shown),
        "mean": float(np.mean(num_shown)) if num_shown else 0.0,
    }


def summarize_shots(
    recipe: FewShotRecipe, outcomes: Sequence[Outcome], contamination: Contamination | None
) -> dict[str, Any]:
    """Join the seeds and orders of one K, as far as any prompt holds a demonstration."""
    outcomes = [outcome for outcome in outcomes if outcome.counted]
    task, name = recipe.task, criterion_of(recipe.task)
    conditions = [
        {
            "seed": outcome.condition.seed,
            "order": outcome.condition.order,
            "scores": as_json(scores_of(task, outcome.counted)),
            "items": len(outcome.counted),
            "dropped": outcome.dropped,
            "cut": outcome.cut,
            "prompt_sha256": outcome.prompt_hash,
        }
        for outcome in outcomes
    ]
    values = [condition["scores"][name] for condition in conditions]
    everything = [record for outcome in outcomes for record in outcome.counted]
    summary = {
        "mean": float(np.mean(values)),
        "standard_error": standard_error(outcomes, values),
        "interval": list(interval_of(task, [outcome.records for outcome in outcomes])),
        "scores": mean_scores(conditions),
        "dropped": sum(outcome.dropped for outcome in outcomes),
        "cut": sum(outcome.cut for outcome in outcomes),
        "conditions": conditions,
        "groups": mean_groups(task, outcomes),
    }
    if is_choosing(task):
        summary["reliability"] = reliability(everything, way_of(task))
    if isinstance(task, MinimalPairRecipe):
        summary["ties"] = sum(record["is_tied"] for record in everything)
    if contamination is not None:
        summary["contamination"] = {
            part: {"items": int(mask.sum()), "score": score_of_part(task, outcomes, mask)}
            for part, mask in contamination.parts().items()
        }
    return summary


def score_of_part(task: Common, outcomes: Sequence[Outcome], mask: np.ndarray) -> float | None:
    """Give the mean criterion of some items; of none there is none."""
    name = criterion_of(task)
    parts = [
        [record for record, is_in in zip(outcome.records, mask, strict=True) if is_in and record]
        for outcome in outcomes
    ]
    scores = [scores_of(task, own)[name] for own in parts if own]
    return float(np.mean(scores)) if scores else None


def standard_error(outcomes: Sequence[Outcome], values: Sequence[float]) -> float | None:
    """Give the standard error of the mean over seeds, each the mean of its orders; none of a single seed."""
    by_seed: dict[int, list[float]] = {}
    for outcome, value in zip(outcomes, values, strict=True):
        by_seed.setdefault(outcome.condition.seed, []).append(value)
    means = [float(np.mean(own)) for own in by_seed.values()]
    return deviation(means) / len(means) ** 0.5 if len(means) > 1 else None


def mean_scores(conditions: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Give the mean of every score; what is not finite in one condition has none."""
    names = conditions[0]["scores"]
    values = {name: [condition["scores"][name] for condition in conditions] for name in names}
    return {name: None if None in own else float(np.mean(own)) for name, own in values.items()}


def mean_groups(task: Common, outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Give the mean criterion of each group, if there are several."""
    each = [by_group(task, outcome.counted) for outcome in outcomes]
    groups = sorted({group for own in each for group in own})
    if len(groups) < 2:
        return {}
    return {group: float(np.mean([own[group] for own in each if group in own])) for group in groups}
