"""Distillation, from a recipe to a smaller model.

recipe -> steps and students, prepared once
             |
          for each student:  pretraining with a teacher -> fine-tuning with one -> model

A recipe has one of these steps, or both. Students are its own one, the same without a teacher, and the same
from random weights.
"""

from pathlib import Path

from ..configs.messages import in_part
from ..data.steps.exchange import main_first
from ..training.devices.precision import join_processes
from ..training.run_folder import MODEL, running
from .facts import keep_student
from .output import run_folder
from .recipe import DistillationRecipe
from .steps import prepare


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
    processes = (
        join_processes() if recipe.general is None else join_processes(recipe.general.training.timeout)
    )
    with running(run_folder(recipe), resume=resume, overwrite=overwrite, processes=processes) as run:
        with main_first():
            prepared = prepare(recipe)
        prepared.require_fit(run.folder)
        with run.together() as is_main:
            if is_main:
                run.take()
        for student in prepared.students:
            for name, step in prepared.steps.items():
                place = run.folder / student.name / name
                with in_part(name):
                    step.learn(student, place, resume=run.resume)
                student = student.going_on(place / MODEL)
        with run.together() as is_main:
            if is_main:
                keep_student(run.folder, prepared, is_timed=recipe.report.speed)
        return run.folder / MODEL
