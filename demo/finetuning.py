"""A pretrained model learns a task; the same architecture with random weights does, too, from the same rows.

model ----------+
                +--> fine-tune --> answers to the test rows --> scores, beside those of no Transformer
random weights -+
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from ..configs.recipe import load_recipe
from ..finetune.output import PREDICTIONS
from ..finetune.recipe import FineTuningRecipe
from ..finetune.run import finetune
from ..finetune.summary import read_predictions
from ..finetune.task import Prediction
from ..finetune.tasks import columns_of, load_task
from ..metrics.bootstrap import mean_interval
from ..pretraining.recipe import PretrainingRecipe
from ..text.row_files import read_file
from ..training.run_folder import MODEL
from .baselines import TASK_BASELINES
from .tasks import SPLITS

TASKS = {"encoder": "packages", "decoder": "packages", "seq2seq": "summaries"}
"""Member -> task that it is fine-tuned on."""

PRETRAINED = "pretrained"
RANDOM_WEIGHTS = "random weights"

ROWS = "tasks"
FROM_SCRATCH = "from-scratch"
FINETUNED = "finetuned"
"""Folders of the rows, of the models with random weights, and of the runs."""


@dataclass(frozen=True)
class ScoredPredictions:
    """Predictions of the test rows, and a score for each."""

    predictions: Sequence[Prediction]
    scores: np.ndarray
    """Of each row, (E,)."""

    @property
    def score(self) -> float:
        """The mean."""
        return float(self.scores.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """The mean's 95 % interval."""
        return mean_interval(self.scores)

    def lead_over(self, other: "ScoredPredictions") -> tuple[float, float]:
        """Give the 95 % interval of how much better these are, row by row."""
        return mean_interval(self.scores - other.scores)


@dataclass(frozen=True)
class TaskResult:
    """How well a member has learned its task."""

    member: str
    recipe: FineTuningRecipe
    """Of the run that began with the pretrained model."""
    num_rows: int
    """Training rows."""
    rows: Dataset
    """Test rows."""
    answers: Mapping[str, ScoredPredictions]
    """Of the pretrained model, of the one with random weights, and of what is no Transformer."""
    seconds: float

    @property
    def task(self) -> str:
        """Name of the task."""
        return TASKS[self.member]

    @property
    def in_one_line(self) -> str:
        """Compare the scores in one line."""
        scores = ", ".join(f"{name} {answers.score:.3f}" for name, answers in self.answers.items())
        return f"{TASK_BASELINES[self.task].metric}: {scores}"


def load_tasks(overrides: Iterable[str] = ()) -> dict[str, FineTuningRecipe]:
    """Read the shipped recipe of each task."""
    return {task: load_recipe(FineTuningRecipe, f"{task}-demo", overrides) for task in TASK_BASELINES}


def finetune_member(
    member: str, recipe: FineTuningRecipe, pretraining: PretrainingRecipe, folder: Path
) -> TaskResult:
    """Fine-tune a member twice, pretrained and not, and compare both with what is no Transformer.

    Args:
        member: Its name.
        recipe: Of its task; model, rows and output are replaced by those of the demonstration.
        pretraining: How the member was pretrained.
        folder: Of the demonstration, where the rows are.
    """
    began = time.perf_counter()
    task = TASKS[member]
    baselines = TASK_BASELINES[task]
    files: dict[str, Any] = {split: str(folder / ROWS / f"{task}-{split}.jsonl") for split in SPLITS}
    recipe = replace(recipe, data=replace(recipe.data, **files))
    beginning = replace(recipe.model, path=str(pretraining.folder / MODEL))
    run = replace(recipe, model=beginning, output=str(folder / FINETUNED / member))
    control = replace(
        recipe,
        model=replace(beginning, from_scratch=True),
        output=str(folder / FINETUNED / f"{member}-{FROM_SCRATCH}"),
    )
    predictions = {PRETRAINED: predictions_of(run), RANDOM_WEIGHTS: predictions_of(control)}
    rows = {split: read_file(file, columns_of(recipe.task)) for split, file in files.items()}
    predictions |= baselines.answers(load_task(run.model_folder), rows)
    answers = {
        name: ScoredPredictions(said, baselines.score_each(said, rows["test"]))
        for name, said in predictions.items()
    }
    seconds = time.perf_counter() - began
    return TaskResult(member, run, len(rows["train"]), rows["test"], answers, seconds)


def predictions_of(recipe: FineTuningRecipe) -> list[Prediction]:
    """Fine-tune, and read the predictions of the test rows."""
    finetune(recipe)
    return read_predictions(recipe.folder / PREDICTIONS)
