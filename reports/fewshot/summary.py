"""What the conditions of a model have come to: mean, spread and interval for every K, and of some items."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...fewshot.evaluation import Condition, Outcome
from ...fewshot.output import ITEMS, ROWS
from ...fewshot.tasks.task import Record, RowScore, Task
from ...training.metrics.bootstrap import bootstrap_interval, bootstrap_scores, deviation, percentile_interval
from ...training.run_folder import EVALUATION
from ...training.tracking import as_json
from ..scores import Score, about_bytes, as_pair, between, number
from ..verdicts import FEWEST_ROWS, missing_interval, trusted

GAIN_RESAMPLES = 300
"""How often rows are drawn for a gain: two scores are computed each time."""


def summarize(folder: Path, task: Task) -> dict[str, Any]:
    """Summarize what models have predicted, from what their evaluation left in its folder."""
    facts = json.loads((folder / EVALUATION).read_text(encoding="utf-8"))
    rows = read_lines(folder / ROWS)
    worth = {name: [row["baselines"][name] for row in rows] for name in rows[0]["baselines"]}
    touched = None
    if facts["contamination"] is not None:
        touched = np.array([row["is_touched"] for row in rows])
    models = []
    with (folder / ITEMS).open(encoding="utf-8", newline="\n") as lines:
        for model in facts["models"]:
            known = {key: value for key, value in model.items() if key != "conditions"}
            outcomes = read_outcomes(lines, [row["row"] for row in rows], model["conditions"])
            models.append(known | summarize_model(task, outcomes, worth, touched))
    baselines = {name: task.score_of_baseline(own)(np.arange(len(rows))) for name, own in worth.items()}
    return facts | {"criterion": task.metric, "baselines": baselines, "models": models}


def read_lines(file: Path) -> list[Any]:
    """Read a file of JSON lines; other ends of a line that Unicode knows may stand in their texts."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


def read_outcomes(
    lines: Iterator[str], numbers: Sequence[int], conditions: Sequence[Mapping[str, Any]]
) -> list[Outcome]:
    """Read a model's outcomes, whose records are the next ones of the log, condition by condition."""
    places, outcomes = {number: place for place, number in enumerate(numbers)}, []
    for told in conditions:
        records: list[Record | None] = [None] * len(numbers)
        for _ in range(told["items"]):
            record = json.loads(next(lines))
            records[places[record["row"]]] = record
        condition = Condition(told["num_fewshot"], told["seed"], told["order"])
        outcomes.append(Outcome(condition, records, told["dropped"], told["cut"], told["prompt_sha256"]))
    return outcomes


def summarize_model(
    task: Task,
    outcomes: Sequence[Outcome],
    baselines: Mapping[str, Sequence[Any]],
    touched: np.ndarray | None,
) -> dict[str, Any]:
    """Summarize what a model has predicted.

    Args:
        outcomes: Outcomes of all conditions.
        baselines: What needs no model, by its name: what it is worth for each row.
        touched: Which rows stand in a corpus, if that was looked for.
    """
    counts = sorted({outcome.condition.num_fewshot for outcome in outcomes})
    by_count = {count: [each for each in outcomes if each.condition.num_fewshot == count] for count in counts}
    summaries = {
        str(count): summarize_num_fewshot(task, own, baselines, touched)
        for count, own in by_count.items()
        if any(outcome.counted for outcome in own)
    }
    if "0" in summaries:
        for count in summaries.keys() - {"0"}:
            summaries[count]["gain"] = gain_of(task, by_count[int(count)], by_count[0])
    return {
        "shots": summaries,
        "fitted": {str(count): what_fitted(own) for count, own in by_count.items() if count},
    }


def scores_of(results: Mapping[str, Any]) -> Iterator[Score]:
    """Yield the score of each model with each number of demonstrations."""
    for model in results["models"]:
        for shots, own in model["shots"].items():
            name, interval = f"{model['name']}, K = {shots}", as_pair(own["interval"])
            yield Score(name, own["mean"], interval, own.get("baselines", {}), own.get("rows"), "test")


def told(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about the scores with which the command ends."""
    for each in scores_of(results):
        doubt = between(each.interval) if each.interval else f"no interval: {missing_interval(each.n or 0)}"
        yield f"{each.name}: {results['criterion']} {number(each.value)} ({doubt})"
    yield from about_models(results)
    about = "K demonstrations in a prompt, 95 % intervals"
    if baselines := [f"{name} {number(value)}" for name, value in results["baselines"].items()]:
        about = f"baselines of all rows: {', '.join(baselines)}; {about}"
    yield about


def about_models(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield of which models bits per byte are too low, and why."""
    for model in results["models"]:
        names = (name for own in model["shots"].values() for name in own["scores"])
        yield from (f"{model['name']}: {line}" for line in about_bytes(names, model["lost_by_tokenizer"]))


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
    baselines: Mapping[str, Sequence[Any]],
    touched: np.ndarray | None,
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
    if touched is not None:
        parts = {"all": np.ones_like(touched), "clean": ~touched, "touched": touched}
        summary["contamination"] = {
            part: {"items": int(mask.sum()), "score": score_of_part(task, outcomes, mask)}
            for part, mask in parts.items()
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


def doubt_of(task: Task, conditions: Conditions, baselines: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return how many rows count, the metric's 95 % interval, and what needs no model on the same rows.

    `differences` are the intervals of how far the metric is above baselines that depend on the rows drawn.
    """
    rows, own = counted_rows(conditions), drawn_scores(task, conditions)
    scored = {name: task.score_of_baseline(worth) for name, worth in baselines.items()}
    guessed = {
        name: bootstrap_scores(lambda drawn, of=score: of(rows[drawn]), len(rows))
        for name, score in scored.items()
    }
    return {
        "rows": len(rows),
        "interval": trusted(percentile_interval(own), len(rows)),
        "baselines": {name: score(rows) for name, score in scored.items()},
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
