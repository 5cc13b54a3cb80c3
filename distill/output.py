"""The folder of a distillation: what lies in it, and when a run may write there.

recipe.yaml       what the run does                    scores.json        all scores, sizes and times
student/          general/ and task/, as far as the recipe has these steps: log, checkpoints, scores, model
without-teacher/  the same student, taught by labels and text alone
random/           the same student, from random weights
model/            the finished student                 evaluation.json    its scores, for `tercet push`
report.md, report.html, comparison.png                 texts.json         names, sizes and hashes of the data
"""

from dataclasses import fields

from ..finetune.output import MAY_CHANGE
from ..finetune.recipe import FineTuningSchedule
from ..pretraining.output import WHAT_IS_LEARNED as OF_PRETRAINING
from ..training.recipe import TrainingRecipe
from ..training.run_folder import (
    RECIPE,
    RunFolder,
)
from .recipe import DistillationRecipe

GENERAL = "general"
TASK = "task"
"""Folders of the steps, in that of a student."""

BEGINNING = "beginning"
"""Folder of the student that the step on rows begins with, in that of the step."""

BEGINNING_HASH = "beginning.sha256"
"""File beside it: the hash of the weights that the step began with."""

CACHE = "cache.json"
"""File in the folder of a run on raw text that says what a cached teacher lacks."""

TEACHER = "teacher"
STUDENT = "student"
WITHOUT_TEACHER = "without-teacher"
RANDOM = "random"
COMPARISON = "comparison.png"

MAY_DIFFER = {
    *("steps", "tokens_per_micro_batch", "checkpoint_every", "keep_checkpoints", "log_every", "trackers"),
    *(
        "async_checkpoints",
        "measure_utilization",
        "peak_flops",
        "gradient_checkpointing",
        "cpu_offload",
        "num_workers",
        "max_skipped_steps",
        "timeout",
        "retain_heap",
        "save_code",
    ),
}
"""Keys of `general.training` that a resumed run may change: with others, finished students would have learned
otherwise than those that they are compared with."""

WHAT_IS_LEARNED = (
    *("student", "general.teacher"),
    *(f"general.{key}" for key in OF_PRETRAINING if key.startswith("corpus.")),
    *("general.objective", "general.losses", "general.objective_weight", "general.sequences"),
    *("general.on_policy",),
    *("general.cache.top_k", "general.cache.copies", "general.cache.precision"),
    *(f"general.training.{key.name}" for key in fields(TrainingRecipe) if key.name not in MAY_DIFFER),
    *("task.teacher", "task.data", "task.unlabelled", "task.temperature"),
    *("task.soft_weight", "task.hard_weight"),
    *(f"task.training.{key.name}" for key in fields(FineTuningSchedule) if key.name not in MAY_CHANGE),
)
"""Keys of a recipe that a resumed run may not change."""


def run_folder(recipe: DistillationRecipe) -> RunFolder:
    """Return where a run writes and what it reads."""
    return RunFolder(
        recipe,
        kept=WHAT_IS_LEARNED,
        prepared=(RECIPE,),
        models=(
            *("student.path", "general.teacher", "task.teacher"),
            *("general.corpus.cache", "general.cache.folder"),
        ),
        texts=(
            *("task.data.train", "task.data.validation", "task.data.test", "task.unlabelled"),
            *("general.corpus.train", "general.corpus.validation"),
        ),
    )
