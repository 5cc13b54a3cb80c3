"""The folder of a distillation: what lies in it, and when a run may write there.

recipe.yaml       what the run does                    scores.json        all scores, sizes and times
student/          general/ and task/, as far as the recipe has these steps: log, checkpoints, scores, model
without-teacher/  the same student, taught by labels and text alone
random/           the same student, from random weights
model/            the finished student                 evaluation.json    its scores, for `tercet push`
report.md, report.html, comparison.png                 texts.json         names, sizes and hashes of the data
"""

from ..training.run_folder import RECIPE, RunFolder
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


def run_folder(recipe: DistillationRecipe) -> RunFolder:
    """Return where a run writes and what it reads."""
    kept = ["student"]
    for name, step in ((GENERAL, recipe.general), (TASK, recipe.task)):
        kept += [name] if step is None else [f"{name}.{key}" for key in step.WHAT_IS_LEARNED]
    return RunFolder(
        recipe,
        kept=kept,
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
