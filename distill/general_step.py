"""The step on raw text: a pretrained teacher reads along, or has read before, and the student learns.

PreparedGeneralStep -> setup -> fit -> model       a run: the student, or one that it is compared with
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn
from transformers import PreTrainedModel

from ..configs.recipe import recipe_data
from ..objectives.token_objective import TokenObjective
from ..pretraining.model import SavedModel
from ..pretraining.prepared import extent_of
from ..pretraining.run import keep_models
from ..pretraining.text import ReadText
from ..training.disk import replace_text
from ..training.evaluation import HeldOut
from ..training.examples import left_out_of
from ..training.exchange import main_first
from ..training.fit import fit
from ..training.precision import build_accelerator
from ..training.run_folder import EVALUATION, MODEL, write_recipe
from ..training.stages import prepare_data
from .cache import CachedTeacher
from .general_prepared import PreparedGeneralStep, build_setup, source_of
from .model_outputs import Learner
from .recipe import DistillationRecipe

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
    accelerator = build_accelerator(general.training, folder)
    with main_first():
        source = source_of(step, general, accelerator.device)
    learner, objective = build_setup(step, recipe, source, accelerator)
    held_out = of_student(step.held_out, step.base)
    is_stream = general.corpus.streaming
    data = prepare_data(
        source, objective, general.training, accelerator, held_out=held_out, is_stream=is_stream
    )
    student, examples = learner.student, source.epoch(0)
    left_out = {"train": left_out_of(examples), "validation": held_out.left_out}
    text = ReadText(step.texts, step.held_out, left_out)
    if accelerator.is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        write_recipe(recipe, folder)
        text.tell(folder)
    accelerator.wait_for_everyone()
    outcome = fit(
        learner,
        objective,
        data,
        general.training,
        folder,
        accelerator,
        width=student.config.hidden_size,
        about=recipe_data(recipe) | {"text": extent_of(examples)},
        resume=resume,
    )
    if outcome.interrupted_by is not None:
        raise KeyboardInterrupt(f"stopped by {outcome.interrupted_by}; continue with --resume")
    if accelerator.is_main_process and isinstance(objective.teacher, CachedTeacher):
        replace_text(folder / CACHE, json.dumps({"missing": objective.teacher.missing}, indent=2) + "\n")
    find = partial(finished_student, student)
    keep_models(learner, find, step.tokenizer, general.training, folder, outcome, text, accelerator)
    accelerator.wait_for_everyone()
    told = results_of(folder)
    assert told is not None
    return told


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


def finished_student(student: PreTrainedModel, weights: Mapping[str, Tensor]) -> dict[str, SavedModel]:
    """Find the student among all weights of a learner, by the folder that it gets."""
    return {MODEL: (student, of_prefix(weights, "student."))}


def of_prefix(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Take the tensors whose names begin with a prefix, and take it off."""
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
