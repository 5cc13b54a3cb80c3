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

import torch
from datasets import Dataset

from ..configs.recipe import load_recipe
from ..finetune.output import PREDICTIONS
from ..finetune.prediction import Predictor
from ..finetune.recipe import FineTuningRecipe
from ..finetune.run import finetune
from ..finetune.summary import read_predictions
from ..finetune.task import Prediction
from ..finetune.tasks import load_task
from ..pretraining.recipe import PretrainingRecipe
from ..text.row_files import read_file
from ..training.run_folder import MODEL
from .baselines import label_by_counting, score_labels
from .measured import Measured
from .prompts import PARAGRAPHS
from .tasks import SPLITS

TASK = "packages"
"""What the encoder is fine-tuned for."""

MEMBER = "encoder"

PRETRAINED = "pretrained"
RANDOM_WEIGHTS = "random weights"

ROWS = "tasks"
FROM_SCRATCH = "from-scratch"
FINETUNED = "finetuned"
"""Folders of the rows, of the models with random weights, and of the runs."""


@dataclass(frozen=True)
class ScoredPredictions(Measured):
    """Predictions of the test rows, and a score for each."""

    predictions: Sequence[Prediction]


@dataclass(frozen=True)
class TaskResult:
    """How well a member has learned its task."""

    recipe: FineTuningRecipe
    """Of the run that began with the pretrained model."""
    num_rows: int
    """Training rows."""
    rows: Dataset
    """Test rows."""
    answers: Mapping[str, ScoredPredictions]
    """Of the pretrained model, of the one with random weights, and of what is no Transformer."""
    prompted: Sequence[Prediction]
    """Of the fine-tuned model, for the paragraphs that the author made up."""
    seconds: float

    @property
    def in_one_line(self) -> str:
        """Compare the scores in one line."""
        scores = ", ".join(f"{name} {answers.score:.3f}" for name, answers in self.answers.items())
        return f"accuracy: {scores}"


def load_finetuning(overrides: Iterable[str] = ()) -> FineTuningRecipe:
    """Read the shipped recipe."""
    return load_recipe(FineTuningRecipe, f"{TASK}-demo", overrides)


def finetune_encoder(recipe: FineTuningRecipe, pretraining: PretrainingRecipe, folder: Path) -> TaskResult:
    """Fine-tune the encoder twice, pretrained and not, and compare both with what is no Transformer.

    Args:
        recipe: Of its task; model, rows and output are replaced by those of the demonstration.
        pretraining: How it was pretrained.
        folder: Of the demonstration, where the rows are.
    """
    began = time.perf_counter()
    files: dict[str, Any] = {split: str(folder / ROWS / f"{TASK}-{split}.jsonl") for split in SPLITS}
    recipe = replace(recipe, data=replace(recipe.data, **files))
    beginning = replace(recipe.model, path=str(pretraining.folder / MODEL))
    run = replace(recipe, model=beginning, output=str(folder / FINETUNED / MEMBER))
    control = replace(
        recipe,
        model=replace(beginning, from_scratch=True),
        output=str(folder / FINETUNED / f"{MEMBER}-{FROM_SCRATCH}"),
    )
    predictions = {PRETRAINED: predictions_of(run), RANDOM_WEIGHTS: predictions_of(control)}
    rows = {split: read_file(file, recipe.task.columns) for split, file in files.items()}
    predictions |= label_by_counting(load_task(run.model_folder), rows)
    answers = {
        name: ScoredPredictions(score_labels(said, rows["test"]), said) for name, said in predictions.items()
    }
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    prompted = Predictor(run.model_folder, device).predict(Dataset.from_dict({"text": list(PARAGRAPHS)}))
    seconds = time.perf_counter() - began
    return TaskResult(run, len(rows["train"]), rows["test"], answers, prompted, seconds)


def predictions_of(recipe: FineTuningRecipe) -> list[Prediction]:
    """Fine-tune, and read the predictions of the test rows."""
    finetune(recipe)
    return read_predictions(recipe.folder / PREDICTIONS)
