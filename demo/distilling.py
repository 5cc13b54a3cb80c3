"""The encoder that has learned a task teaches it to a student of half its layers (Sanh et al., 2019)."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..configs.recipe import load_recipe
from ..distill.output import STUDENT, TASK, TEACHER, WITHOUT_TEACHER
from ..distill.recipe import DistillationRecipe
from ..distill.report import cards, kept_of, kept_table
from ..distill.run import distill
from ..distill.size_and_speed import about_speed, size_table
from ..finetune.output import PREDICTIONS
from ..finetune.summary import read_predictions
from ..reporting.blocks import Block, Cards, Heading, Prose
from ..training.run_folder import PAGE, SCORES
from .baselines import score_labels
from .finetuning import TaskResult
from .measured import Measured

DISTILLED = "distilled"
"""Folder of the run."""


@dataclass(frozen=True)
class DistillationResult:
    """What a student has kept of its teacher."""

    summary: Mapping[str, Any]
    """As distillation keeps it."""
    gain: tuple[float, float]
    """The 95 % interval of how much more of the test rows the student has right than the one without a
    teacher."""
    seconds: float

    @property
    def in_one_line(self) -> str:
        """Describe how the scores compare."""
        kept = kept_of(self.summary)
        own, theirs = kept[STUDENT], kept[TEACHER]
        alone = kept[WITHOUT_TEACHER]["score"]
        return f"teacher {theirs['score']:.3f}, student {own['score']:.3f}, without a teacher {alone:.3f}"


def load_distillation(overrides: Iterable[str] = ()) -> DistillationRecipe:
    """Read the shipped recipe."""
    return load_recipe(DistillationRecipe, "encoder-half-demo", overrides)


def distill_encoder(recipe: DistillationRecipe, result: TaskResult, folder: Path) -> DistillationResult:
    """Distill a fine-tuned model, on the rows that it learned from.

    Args:
        recipe: How; teacher, rows and output are replaced by those of the demonstration.
        result: Of fine-tuning the teacher.
        folder: Of the demonstration.
    """
    began = time.perf_counter()
    assert recipe.task is not None
    task = replace(recipe.task, teacher=str(result.recipe.model_folder), data=result.recipe.data)
    recipe = replace(recipe, task=task, output=str(folder / DISTILLED))
    distill(recipe)
    summary = json.loads((recipe.folder / SCORES).read_text(encoding="utf-8"))
    with_teacher, without = (
        Measured(score_labels(read_predictions(recipe.folder / name / TASK / PREDICTIONS), result.rows))
        for name in (STUDENT, WITHOUT_TEACHER)
    )
    return DistillationResult(summary, with_teacher.lead_over(without), time.perf_counter() - began)


def distillation_chapter(distilled: DistillationResult) -> Iterator[Block]:
    """Yield what the student keeps, what its teacher brought, and what is saved."""
    yield Heading("Half the layers")
    yield Prose(
        "A student with every second layer of the fine-tuned encoder learns the same task, from the labels "
        "and from its teacher's probabilities (Hinton et al., 2015). For comparison, the table has the "
        "same student without a teacher, and the published result of DistilBERT (Sanh et al., 2019)."
    )
    yield Cards([*cards(distilled.summary)])
    yield kept_table(distilled.summary)
    yield size_table(distilled.summary)
    yield Prose(f"{about_speed(distilled.summary)} More in [its report]({DISTILLED}/{PAGE}).")
