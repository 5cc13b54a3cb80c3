"""The step on raw text: a pretrained teacher reads along, or has read before, and the student learns.

PreparedGeneralStep -> parts -> learn -> model      a run: the student, or one that it is compared with
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from accelerate import Accelerator
from torch import nn

from ..configs.recipe import recipe_data
from ..data.disk import replace_text
from ..data.steps.examples import left_out_of
from ..data.steps.exchange import main_first, wait_for_everyone
from ..pretraining.prepared import Prepared, extent_of
from ..pretraining.revisions import keep_models
from ..pretraining.text import ReadText
from ..training.evaluation import HeldOut
from ..training.learning import Session, learn
from ..training.run_folder import EVALUATION, MODEL, write_recipe
from ..training.stages import prepare_data
from ..training.token_objective import TokenObjective
from .cache import CachedTeacher
from .general_prepared import PreparedGeneralStep, build_setup, source_of
from .model_outputs import Learner
from .objective import Distillation
from .recipe import DistillationRecipe, GeneralRecipe

CACHE = "cache.json"
"""File in the folder of a run that says what a cached teacher lacks."""


def learn_general(
    step: PreparedGeneralStep, recipe: DistillationRecipe, folder: Path, *, resume: bool
) -> dict[str, Any]:
    """Carry out a run of the step and return what it came to; one that is finished is not repeated.

    Args:
        step: Its teacher and its text.
        recipe: Its student and how that learns, which may be another than the step's for comparison.
        folder: Receives log, checkpoints, scores and model.
        resume: Continue a run that is there.

    Raises:
        ValueError: The recipe does not fit the models, or a run is there and not to be continued.
        KeyboardInterrupt: A signal stopped the run; its checkpoint is written.
    """
    general = recipe.general
    assert general is not None
    if (told := results_of(folder)) is not None and told["step"] >= general.training.steps:
        require_steps(told["step"], general.training.steps, folder)
        return told
    session = Session.begin(folder, general.training, resume=resume)
    parts = build_parts(step, recipe, general, session.accelerator)
    is_main = session.accelerator.is_main_process
    if is_main:
        folder.mkdir(parents=True, exist_ok=True)
        write_recipe(recipe, folder)
        parts.text.tell(folder)
    wait_for_everyone()
    outcome = learn(session, parts, general.training)
    teacher = cast(Distillation, parts.objective).teacher
    if is_main and isinstance(teacher, CachedTeacher):
        replace_text(folder / CACHE, json.dumps({"missing": teacher.missing}, indent=2) + "\n")
    keep_models(session, parts, outcome, general.training)
    wait_for_everyone()
    told = results_of(folder)
    assert told is not None
    return told


def build_parts(
    step: PreparedGeneralStep, recipe: DistillationRecipe, general: GeneralRecipe, accelerator: Accelerator
) -> Prepared:
    """Build what a run of the step learns with: its student, and what that learns of text and teacher."""
    with main_first():
        source = source_of(step, general, accelerator.device)
    learner, objective = build_setup(step, recipe.student, general, source, accelerator)
    held_out, examples = of_student(step.held_out, step.base), source.epoch(0)
    is_stream = general.corpus.streaming
    data = prepare_data(
        source, objective, general.training, accelerator, held_out=held_out, is_stream=is_stream
    )
    return Prepared(
        model=learner,
        objective=objective,
        data=data,
        width=learner.student.config.hidden_size,
        about=recipe_data(recipe) | {"text": extent_of(examples)},
        tokenizer=step.tokenizer,
        text=ReadText(step.texts, step.held_out, left_out_of(examples)),
        saved={MODEL: "student"},
    )


def require_steps(taken: int, steps: int, folder: Path) -> None:
    """Raise a `ValueError` if a finished run has taken more steps than the recipe now says."""
    if taken > steps:
        raise ValueError(
            f"general.training.steps = {steps}, but {folder} has taken {taken}: resume with at least as "
            f"many, or start over with --overwrite"
        )


def results_of(folder: Path) -> dict[str, Any] | None:
    """Read what a finished run came to, if there is one."""
    file = folder / EVALUATION
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def of_student(held_out: HeldOut, base: TokenObjective) -> HeldOut:
    """Measure a learner by its student, whose best checkpoint is lowest in the objective's loss."""

    def measure(learner: nn.Module) -> dict[str, float]:
        return held_out.measure(cast(Learner, learner).student)

    return replace(held_out, measure=measure, criterion=lambda scores: scores[f"{base.term}/loss"])
