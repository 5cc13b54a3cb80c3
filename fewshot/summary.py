"""What the conditions of a model have come to: mean, spread and interval for every K, and of some items."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..metrics.bootstrap import bootstrap_interval, bootstrap_scores, deviation, percentile_interval
from ..reporting.verdicts import FEWEST_ROWS, trusted
from ..training.finite_json import as_json
from .contamination import Contamination
from .evaluation import Outcome
from .subject import Subject
from .task import Record, RowScore, Task

GAIN_RESAMPLES = 300
"""How often rows are drawn for a gain: two scores are computed each time."""


def summarize_model(
    task: Task,
    subject: Subject,
    weights: tuple[str, str],
    outcomes: Sequence[Outcome],
    baselines: Mapping[str, RowScore],
    contamination: Contamination | None,
) -> dict[str, Any]:
    """Summarize what a model has predicted.

    Args:
        task: The task.
        subject: The model.
        weights: Hash of its weights before, and after.
        outcomes: Of all conditions.
        baselines: What needs no model, by its name.
        contamination: Which items stand in a corpus, if that was looked for.

    Raises:
        ValueError: All conditions have demonstrations, and not one fits.
    """
    checkpoint = subject.checkpoint
    counts = sorted({outcome.condition.num_fewshot for outcome in outcomes})
    by_count = {count: [each for each in outcomes if each.condition.num_fewshot == count] for count in counts}
    summaries = {
        str(count): summarize_num_fewshot(task, own, baselines, contamination)
        for count, own in by_count.items()
        if any(outcome.counted for outcome in own)
    }
    if not summaries:
        raise ValueError(
            f"no demonstration fits into any prompt of {checkpoint.name}, which has a maximum length of "
            f"{checkpoint.max_length:,} tokens: add 0 to prompting.num_fewshot, shorten the templates, or "
            f"name a model with a larger maximum length"
        )
    if "0" in summaries:
        for count in summaries.keys() - {"0"}:
            summaries[count]["gain"] = gain_of(task, by_count[int(count)], by_count[0])
    return {
        "name": checkpoint.name,
        "member": subject.member,
        "class": type(subject.model).__name__,
        "parameters": sum(parameter.numel() for parameter in subject.model.parameters()),
        "weights_sha256": weights[0],
        "weights_unchanged": weights[0] == weights[1],
        "shots": summaries,
        "fitted": {str(count): what_fitted(own) for count, own in by_count.items() if count},
    }


def what_fitted(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Count the demonstrations in the prompts of one K that count, and the prompts that have none."""
    num_shown = [len(record["demonstrations"]) for outcome in outcomes for record in outcome.counted]
    num_prompts = sum(len(outcome.records) for outcome in outcomes)
    return {
        "prompts": num_prompts,
        "without": num_prompts - len(num_shown),
        "mean": float(np.mean(num_shown)) if num_shown else 0.0,
    }


def summarize_num_fewshot(
    task: Task,
    outcomes: Sequence[Outcome],
    baselines: Mapping[str, RowScore],
    contamination: Contamination | None,
) -> dict[str, Any]:
    """Join the seeds and orders of one K, as far as any prompt holds a demonstration."""
    outcomes = [outcome for outcome in outcomes if outcome.counted]
    conditions = [
        {
            "seed": outcome.condition.seed,
            "order": outcome.condition.order,
            "scores": as_json(task.scores(outcome.counted)),
            "items": len(outcome.counted),
            "dropped": outcome.dropped,
            "cut": outcome.cut,
            "prompt_sha256": outcome.prompt_hash,
        }
        for outcome in outcomes
    ]
    values = [condition["scores"][task.metric] for condition in conditions]
    everything = [record for outcome in outcomes for record in outcome.counted]
    summary = {
        "mean": float(np.mean(values)),
        "standard_error": standard_error(outcomes, values),
        **doubt_of(task, [outcome.records for outcome in outcomes], baselines),
        "scores": mean_scores(conditions),
        "dropped": sum(outcome.dropped for outcome in outcomes),
        "cut": sum(outcome.cut for outcome in outcomes),
        "conditions": conditions,
        "groups": mean_groups(task, outcomes),
        **task.details(everything),
    }
    if contamination is not None:
        summary["contamination"] = {
            part: {"items": int(mask.sum()), "score": score_of_part(task, outcomes, mask)}
            for part, mask in contamination.parts().items()
        }
    return summary


def score_of_part(task: Task, outcomes: Sequence[Outcome], mask: np.ndarray) -> float | None:
    """Return the mean metric of some items; of none there is none."""
    parts = [
        [record for record, is_in in zip(outcome.records, mask, strict=True) if is_in and record]
        for outcome in outcomes
    ]
    scores = [task.scores(own)[task.metric] for own in parts if own]
    return float(np.mean(scores)) if scores else None


def standard_error(outcomes: Sequence[Outcome], values: Sequence[float]) -> float | None:
    """Return the standard error of the mean over seeds, each the mean of its orders; None of a single one."""
    by_seed: dict[int, list[float]] = {}
    for outcome, value in zip(outcomes, values, strict=True):
        by_seed.setdefault(outcome.condition.seed, []).append(value)
    means = [float(np.mean(own)) for own in by_seed.values()]
    return deviation(means) / len(means) ** 0.5 if len(means) > 1 else None


def mean_scores(conditions: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Return the mean of every score; what is not finite in one condition has none."""
    names = conditions[0]["scores"]
    values = {name: [condition["scores"][name] for condition in conditions] for name in names}
    return {name: None if None in own else float(np.mean(own)) for name, own in values.items()}


def mean_groups(task: Task, outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the mean metric of each group, if there are several."""
    each = [by_group(task, outcome.counted) for outcome in outcomes]
    groups = sorted({group for own in each for group in own})
    if len(groups) < 2:
        return {}
    return {group: float(np.mean([own[group] for own in each if group in own])) for group in groups}


def by_group(task: Task, records: Sequence[Record]) -> dict[str, float]:
    """Return the metric of each group of records."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["group"], []).append(record)
    return {group: task.scores(own)[task.metric] for group, own in sorted(groups.items())}


def gain_of(task: Task, outcomes: Sequence[Outcome], others: Sequence[Outcome]) -> dict[str, Any] | None:
    """Return how much the metric gains over other outcomes on the rows that count in both.

    There is nothing to say of fewer than `FEWEST_ROWS`, or if the metric is not defined.
    """
    both = [[outcome.records for outcome in side] for side in (outcomes, others)]
    shared = np.intersect1d(counted_rows(both[0]), counted_rows(both[1]))
    if len(shared) < FEWEST_ROWS:
        return None
    own, theirs = (mean_of_rows(task, side) for side in both)
    interval = bootstrap_interval(
        lambda rows: own(shared[rows]) - theirs(shared[rows]), len(shared), resamples=GAIN_RESAMPLES
    )
    if (known := trusted(interval, len(shared))) is None:
        return None
    return {"rows": len(shared), "mean": own(shared), "without": theirs(shared), "interval": known}


Conditions = Sequence[Sequence[Record | None]]
"""The records of all rows in every condition, none where a row does not count."""


def doubt_of(task: Task, conditions: Conditions, baselines: Mapping[str, RowScore]) -> dict[str, Any]:
    """Return how many rows count, the metric's 95 % interval, and what needs no model on the same rows.

    `differences` are the intervals of how far the metric is above baselines that depend on the rows drawn.
    """
    rows, own = counted_rows(conditions), drawn_scores(task, conditions)
    guessed = {
        name: bootstrap_scores(lambda drawn, of=score: of(rows[drawn]), len(rows))
        for name, score in baselines.items()
    }
    return {
        "rows": len(rows),
        "interval": trusted(percentile_interval(own), len(rows)),
        "baselines": {name: score(rows) for name, score in baselines.items()},
        "differences": {
            name: trusted(percentile_interval(own - scores), len(rows))
            for name, scores in guessed.items()
            if np.ptp(scores) > 0
        },
    }


def counted_rows(conditions: Conditions) -> np.ndarray:
    """List the rows that count in any condition."""
    return np.flatnonzero(
        [any(record is not None for record in row) for row in zip(*conditions, strict=True)]
    )


def drawn_scores(task: Task, conditions: Conditions) -> np.ndarray:
    """Return the metric of rows drawn again and again, (R,), with what all seeds made of them."""
    counted, score = counted_rows(conditions), mean_of_rows(task, conditions)
    return bootstrap_scores(lambda rows: score(counted[rows]), len(counted))


def mean_of_rows(task: Task, conditions: Conditions) -> RowScore:
    """Return a function that computes the mean metric of all conditions on some rows, by their indices."""
    counts = np.array([[record is not None for record in own] for own in conditions])
    scores = [task.metric_of_rows([record for record in own if record is not None]) for own in conditions]
    # Of each condition, where among its records those of a row stand, or -1.
    places = np.where(counts, counts.cumsum(axis=1) - 1, -1)

    def mean_of(rows: np.ndarray) -> float:
        drawn = [own[rows] for own in places]
        parts = [own[own >= 0] for own in drawn]
        return float(np.mean([score(part) for score, part in zip(scores, parts, strict=True) if len(part)]))

    return mean_of
