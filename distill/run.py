"""Distillation, from a recipe to a smaller model.

teacher -> student -> on raw text -> on rows -> model
                         |              |
                      the same without a teacher, and from random weights
"""

from pathlib import Path

from ..data.steps.exchange import main_first
from ..training.devices.precision import join_processes
from ..training.run_folder import MODEL, running
from ..training.stages import require_consistent
from .facts import keep_student
from .general_step import learn_general
from .output import GENERAL, TASK, WITHOUT_TEACHER, run_folder
from .prepared import Prepared, prepare, require_fit
from .recipe import DistillationRecipe, StudentRecipe
from .task_step import learn_task


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
        WriteError: There is no room; what was written before is intact.
    """
    if recipe.general is None:
        processes = join_processes()
    else:
        require_consistent(recipe.general.training)
        processes = join_processes(recipe.general.training.timeout)
    with running(recipe, run_folder, resume=resume, overwrite=overwrite, processes=processes) as run:
        with main_first():
            prepared = prepare(recipe)
        require_fit(prepared)
        with run.together() as is_main:
            if is_main:
                run.take()
        for name in prepared.students:
            learn_all(prepared, name, resume=run.resume)
        with run.together() as is_main:
            if is_main:
                keep_student(recipe, prepared)
    return recipe.model_folder


def learn_all(prepared: Prepared, name: str, *, resume: bool) -> None:
    """Carry out the steps of one student, each beginning with what the one before has made."""
    recipe = prepared.students[name]
    folder, student = recipe.folder / name, recipe.student
    if prepared.general is not None:
        learn_general(prepared.general, recipe, folder / GENERAL, resume=resume)
        student = StudentRecipe(path=str(folder / GENERAL / MODEL))
    if prepared.task is not None:
        is_taught = name != WITHOUT_TEACHER
        learn_task(prepared.task, student, folder / TASK, is_taught=is_taught, resume=resume)
