"""The folder of a distillation: what lies in it, and when a run may write there.

recipe.yaml       what the run does                    scores.json        all scores, sizes and times
student/          general/ and task/, as far as the recipe has these steps: log, checkpoints, scores, model
without-teacher/  the same student, taught by labels and text alone
random/           the same student, from random weights
model/            the finished student                 evaluation.json    its scores, for `tercet push`
report.md, report.html, comparison.png                 texts.json         names, sizes and hashes of the data
"""

from dataclasses import fields

from ..finetune.output import MARKDOWN, MAY_CHANGE, PAGE, SCORES
from ..finetune.recipe import FineTuningSchedule
from ..pretraining.output import (
    EVALUATION,
    MODEL,
    RECIPE,
    TEXTS,
    delete,
    is_replaced,
    make_folder,
    require_elsewhere,
    require_same_recipe,
    require_unused,
    write_recipe,
)
from ..pretraining.output import WHAT_IS_LEARNED as OF_PRETRAINING
from .recipe import DistillationRecipe

GENERAL = "general"
TASK = "task"
STEPS = (GENERAL, TASK)
"""Folders of the steps, in that of a student."""

BEGINNING = "beginning"
"""Folder of the student that the step on rows begins with, in that of the step."""

BEGINNING_HASH = "beginning.sha256"
"""File beside it: the hash of the weights that the step began with."""

TEACHER = "teacher"
STUDENT = "student"
WITHOUT_TEACHER = "without-teacher"
RANDOM = "random"
COMPARISON = "comparison.png"

WRITTEN = (
    *(RECIPE, MODEL, EVALUATION, TEXTS, SCORES, MARKDOWN, PAGE, COMPARISON),
    *(STUDENT, WITHOUT_TEACHER, RANDOM),
)
"""Everything that a run writes into its folder."""

WHAT_IS_LEARNED = (
    *("student", "general.teacher"),
    *(f"general.{key}" for key in OF_PRETRAINING if key.startswith("corpus.")),
    *("general.objective", "general.signals", "general.objective_weight", "general.sequences"),
    *("general.on_policy",),
    *("general.cache.top_k", "general.cache.copies", "general.cache.precision"),
    *("general.training.seed", "general.training.tokens_per_step", "general.training.stages"),
    *("task.teacher", "task.data", "task.unlabelled", "task.temperature"),
    *("task.soft_weight", "task.hard_weight"),
    *(f"task.training.{key.name}" for key in fields(FineTuningSchedule) if key.name not in MAY_CHANGE),
)
"""Keys of a recipe that a resumed run may not change."""


def require_claimable(recipe: DistillationRecipe, *, resume: bool, overwrite: bool) -> None:
    """Make sure that `claim_output` may do as it is told; nothing is changed.

    Raises:
        ValueError: The folder is in use, an earlier run there had another recipe, or it holds the teacher.
    """
    replaced = is_replaced(recipe.folder, overwrite)
    require_unused(recipe.folder, allowed=WRITTEN if resume or replaced else (RECIPE,), written=WRITTEN)
    if replaced:
        models = {
            "student.path": recipe.student.path,
            "general.teacher": recipe.general and recipe.general.teacher,
            "task.teacher": recipe.task and recipe.task.teacher,
        }
        require_elsewhere(recipe.folder, models)
    elif resume:
        require_same_recipe(recipe.folder, recipe, WHAT_IS_LEARNED)


def claim_output(recipe: DistillationRecipe, *, resume: bool, overwrite: bool) -> None:
    """Make the run's folder and write the recipe into it.

    Raises:
        ValueError: As in `require_claimable`.
    """
    require_claimable(recipe, resume=resume, overwrite=overwrite)
    if is_replaced(recipe.folder, overwrite):
        for name in WRITTEN:
            delete(recipe.folder / name)
    make_folder(recipe.folder)
    write_recipe(recipe, recipe.folder)
