"""What the seeds of a run have come to: mean and spread, the best one with its interval, the baselines."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..pretraining.output import EVALUATION, MODEL, RECIPE, delete
from ..training.disk import replace_text
from ..training.tracking import as_json
from .answers import judge
from .bootstrap import bootstrap_interval
from .model import Beginning
from .output import PREDICTIONS, SCORES, seed_folder
from .recipe import FineTuningRecipe
from .splits import MEASURED, Split
from .task import Task


def conclude(
    recipe: FineTuningRecipe,
    task: Task,
    splits: Mapping[str, Split],
    untrained: Beginning,
    results: Mapping[int, dict[str, Any]],
) -> Path:
    """Sum the seeds up, and put the best one's model where it is looked for."""
    best_seed = min(results, key=lambda seed: task.shortfall(results[seed]["validation"]))
    chosen, folder = seed_folder(recipe, best_seed), recipe.folder
    delete(folder / MODEL)
    shutil.copytree(chosen / MODEL, folder / MODEL)
    shutil.copy(folder / RECIPE, folder / MODEL)
    shutil.copy(chosen / PREDICTIONS, folder / PREDICTIONS)
    summary = summarize(task, splits, untrained, results, best_seed, folder / PREDICTIONS)
    replace_text(folder / SCORES, json.dumps(summary, indent=2) + "\n")
    last = [name for name in splits if name in MEASURED][-1]
    scores = {f"{recipe.task.kind}/{name}": value for name, value in results[best_seed][last].items()} | {
        f"{recipe.task.kind}/{task.criterion}/interval": summary["interval"]
    }
    facts = {"scores": scores, "trained_on": results[best_seed]["trained_on"]}
    replace_text(folder / EVALUATION, json.dumps(facts, indent=2) + "\n")
    return folder / MODEL


def summarize(
    task: Task,
    splits: Mapping[str, Split],
    untrained: Beginning,
    results: Mapping[int, dict[str, Any]],
    best_seed: int,
    predictions_file: Path,
) -> dict[str, Any]:
    """Join the scores of all seeds with the baselines and the interval of the best one."""
    measured = [name for name in splits if name in MEASURED]
    last = splits[measured[-1]]
    references = task.references(last.rows)
    predictions = [json.loads(line) for line in predictions_file.read_text(encoding="utf-8").splitlines()]

    def resampled(indices: np.ndarray) -> float:
        return task.score(at(predictions, indices), at(references, indices))[task.criterion]

    guesses = task.guess(splits["train"].rows, last.rows)
    return {
        "criterion": task.criterion,
        "split": measured[-1],
        "rows": {name: len(split.rows) for name, split in splits.items()},
        "seeds": {str(seed): result for seed, result in results.items()},
        "best_seed": best_seed,
        "mean": {name: across(results, name, np.mean) for name in measured},
        "standard_deviation": {name: across(results, name, deviation) for name in measured},
        "interval": list(bootstrap_interval(resampled, len(predictions))),
        "baselines": {
            "without reading": as_json(task.score(guesses, references)),
            "untrained": as_json(judge(untrained.model.eval(), task, last.rows, last.examples).scores),
        },
    }


def across(results: Mapping[int, dict[str, Any]], split: str, reduce: Any) -> dict[str, float]:
    """Reduce each score of a split over the seeds to one number."""
    names = next(iter(results.values()))[split]
    return {name: float(reduce([result[split][name] for result in results.values()])) for name in names}


def deviation(values: list[float]) -> float:
    """Estimate the standard deviation of which these are a sample; 0 of a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def at(values: Any, indices: np.ndarray) -> list[Any]:
    """Pick some of the predictions or references."""
    return [values[index] for index in indices.tolist()]
