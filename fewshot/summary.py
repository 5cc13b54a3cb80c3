"""What the conditions of a model have come to: mean, spread and interval for every K, and of some items."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..finetune.summary import deviation
from ..training.tracking import as_json
from .contamination import Contamination
from .evaluation import Outcome
from .items import is_choosing
from .judging import by_group, criterion_of, interval_of, reliability, scores_of, way_of
from .recipe import FewShotRecipe
from .rows import Items
from .subject import Subject
from .task_recipes import Common, MinimalPairRecipe


def summarize_model(
    recipe: FewShotRecipe,
    items: Items,
    subject: Subject,
    weights: tuple[str, str],
    outcomes: Sequence[Outcome],
    contamination: Contamination | None,
) -> dict[str, Any]:
    """Say what a model has answered.

    Args:
        recipe: What was asked.
        items: The rows.
        subject: The model.
        weights: Hash of its weights before, and after.
        outcomes: Of all conditions.
        contamination: Which items stand in a corpus, if that was looked for.
    """
    shots = sorted({outcome.condition.shots for outcome in outcomes})
    of_shots = {
        str(count): summarize_shots(
            recipe, items, [each for each in outcomes if each.condition.shots == count], contamination
        )
        for count in shots
    }
    return {
        "name": subject.name,
        "member": subject.member,
        "class": type(subject.model).__name__,
        "parameters": sum(parameter.numel() for parameter in subject.model.parameters()),
        "weights_sha256": weights[0],
        "weights_unchanged": weights[0] == weights[1],
        "shots": of_shots,
    }


def summarize_shots(
    recipe: FewShotRecipe, items: Items, outcomes: Sequence[Outcome], contamination: Contamination | None
) -> dict[str, Any]:
    """Join the seeds and orders of one K."""
    task, name = recipe.task, criterion_of(recipe.task)
    conditions = [
        {
            "seed": outcome.condition.seed,
            "order": outcome.condition.order,
            "scores": as_json(scores_of(task, outcome.records)),
            "dropped": outcome.dropped,
            "cut": outcome.cut,
            "prompt_sha256": outcome.prompt_hash,
        }
        for outcome in outcomes
    ]
    values = [condition["scores"][name] for condition in conditions]
    everything = [record for outcome in outcomes for record in outcome.records]
    summary = {
        "mean": float(np.mean(values)),
        "standard_error": standard_error(outcomes, values),
        "interval": list(interval_of(task, [outcome.records for outcome in outcomes])),
        "scores": mean_scores(conditions),
        "dropped": sum(outcome.dropped for outcome in outcomes),
        "cut": sum(outcome.cut for outcome in outcomes),
        "conditions": conditions,
        "groups": mean_groups(recipe, items, outcomes),
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
    if not mask.any():
        return None
    name = criterion_of(task)
    parts = [
        [record for record, is_in in zip(outcome.records, mask, strict=True) if is_in] for outcome in outcomes
    ]
    return float(np.mean([scores_of(task, own)[name] for own in parts]))


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


def mean_groups(recipe: FewShotRecipe, items: Items, outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Give the mean criterion of each group."""
    each = [by_group(recipe.task, items.test, outcome.records) for outcome in outcomes]
    return {group: float(np.mean([own[group] for own in each])) for group in each[0]}
