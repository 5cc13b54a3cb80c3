"""Distillation, from a recipe to a smaller model, and an account of what it keeps and what it saves.

teacher -> student -> on raw text -> on rows -> model
                         |              |
                      the same without a teacher, and from random weights -> report
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ..training.precision import join_processes
from ..training.run_folder import MODEL, writing
from ..training.stages import require_consistent
from .conclusion import conclude
from .general import learn_general
from .general_step import GeneralStep, prepare_general
from .output import GENERAL, RANDOM, STUDENT, TASK, WITHOUT_TEACHER, run_folder
from .recipe import DistillationRecipe, StudentRecipe
from .setup import require_learnable
from .task_step import TaskStep, learn_task, prepare_task, require_student
from .teacher import require_same_vocabulary


def distill(recipe: DistillationRecipe, *, resume: bool = False, overwrite: bool = False) -> Path:
    """Distill a model as a recipe says, and return the folder of the finished student.

    Args:
        recipe: Everything that the run depends on.
        resume: Continue an earlier run in the output folder, if there is one.
        overwrite: Replace an earlier run in the output folder.

    Raises:
        ValueError: Parts of the recipe do not fit each other, the models, the data or the output folder.
        FileNotFoundError: A named file or model does not exist.
        KeyboardInterrupt: A signal stopped the run; its checkpoint is written.
        DiskFullError: There is no room; what was written before is intact.
    """
    if recipe.general is not None:
        require_consistent(recipe.general.training)
    with writing(recipe.folder, join_processes()):
        return distill_alone(recipe, resume=resume, overwrite=overwrite)


def distill_alone(recipe: DistillationRecipe, *, resume: bool, overwrite: bool) -> Path:
    """Distill in a folder that nobody else writes."""
    processes, output = join_processes(), run_folder(recipe)
    output.require_claimable(resume=resume, overwrite=overwrite)
    with processes.main_process_first():
        general = None if recipe.general is None else prepare_general(recipe.general, recipe.folder)
        task = None if recipe.task is None else prepare_task(recipe.task)
    for name, varied in variants(recipe).items():
        require_fit(varied, general, task, recipe.folder / name)
    processes.wait_for_everyone()
    if processes.is_main_process:
        output.claim(resume=resume, overwrite=overwrite)
    processes.wait_for_everyone()
    for name, varied in variants(recipe).items():
        learn_all(
            varied, general, task, recipe.folder / name, is_taught=name != WITHOUT_TEACHER, resume=resume
        )
    if processes.is_main_process:
        conclude(recipe, general, task, list(variants(recipe)))
    processes.wait_for_everyone()
    return recipe.model_folder


def require_fit(
    recipe: DistillationRecipe, general: GeneralStep | None, task: TaskStep | None, folder: Path
) -> None:
    """Make sure that a student fits its teachers, before anything is written.

    Raises:
        ValueError: It does not.
    """
    if general is not None:
        require_learnable(general, recipe, folder / GENERAL)
    if task is None:
        return
    if general is None:
        require_student(task, recipe.student)
    else:
        require_same_vocabulary(task.teacher.tokenizer, general.teacher.tokenizer)


def learn_all(
    recipe: DistillationRecipe,
    general: GeneralStep | None,
    task: TaskStep | None,
    folder: Path,
    *,
    is_taught: bool,
    resume: bool,
) -> None:
    """Carry out the steps of one student, each beginning with what the one before has made."""
    student = recipe.student
    if general is not None:
        learn_general(general, recipe, folder / GENERAL, resume=resume)
        student = StudentRecipe(path=str(folder / GENERAL / MODEL))
    if task is not None:
        learn_task(task, student, folder / TASK, is_taught=is_taught, resume=resume)


def variants(recipe: DistillationRecipe) -> Mapping[str, DistillationRecipe]:
    """Say which students learn: the recipe's own one, and those that it is compared with."""
    wanted: dict[str, tuple[bool, Callable[[DistillationRecipe], DistillationRecipe]]] = {
        STUDENT: (True, lambda recipe: recipe),
        WITHOUT_TEACHER: (recipe.report.without_teacher, without_teacher),
        RANDOM: (
            recipe.report.random
            and recipe.student.path is None
            and recipe.student.initialization == "teacher",
            from_random_weights,
        ),
    }
    return {name: vary(recipe) for name, (is_wanted, vary) in wanted.items() if is_wanted}


def without_teacher(recipe: DistillationRecipe) -> DistillationRecipe:
    """Let the same student learn from the text alone."""
    if recipe.general is None:
        return recipe
    given = {"cache": None, "sequences": None, "on_policy": None}
    plain = replace(recipe.general, signals=(), objective_weight=1.0, **given)
    return replace(recipe, general=plain)


def from_random_weights(recipe: DistillationRecipe) -> DistillationRecipe:
    """Let the same student begin with random weights."""
    return replace(recipe, student=replace(recipe.student, initialization="random"))
