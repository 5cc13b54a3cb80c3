"""The step on raw text: pretraining with a teacher that reads along, or has read before.

GeneralRecipe -> prepare -> teacher, text, objective    what all students have in common
                    |
                 student -> Learner, Distillation -> learn -> model

Text and steps are found and cut as for pretraining. Here is what a teacher adds: the student that is made of
it, its losses beside the objective's, and what it reads or writes beforehand.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn

from ..configs.recipe import recipe_data
from ..data.files.atomic_writes import replace_text
from ..data.steps.examples import ExampleSource, pick
from ..data.steps.exchange import main_first, wait_for_everyone
from ..data.steps.objective import on_device
from ..data.steps.windows import windows_of
from ..data.tokenizers.tokenizer import frame_ids
from ..modeling import TercetConfig, TercetPreTrainedModel
from ..modeling.saved.checkpoint import Checkpoint, Opener
from ..pretraining.finished import keep_models
from ..pretraining.model import require_positions
from ..pretraining.prepared import Prepared, cut_into_steps, extent_of, find_texts
from ..pretraining.text import ReadText, TextReader
from ..training.devices.precision import build_accelerator
from ..training.evaluation import HeldOut, evaluation_mode
from ..training.learning import Session, learn
from ..training.run_folder import EVALUATION, MODEL, write_recipe
from ..training.token_objective import TokenObjective
from .general_recipe import GeneralRecipe
from .losses import DistillationLoss, losses_for, required_projections
from .model_outputs import Learner
from .objective import Distillation, Teacher, required_outputs
from .output import CACHE
from .recipe import DistillationRecipe, StudentRecipe
from .steps import Step, Student
from .student import build_student
from .teacher import LiveTeacher, load_model, require_outputs, require_same_vocabulary


@dataclass(frozen=True, kw_only=True)
class GeneralStep(Step):
    """Pretraining with a teacher."""

    recipe: GeneralRecipe
    base: TokenObjective
    """What is learned from the text itself."""
    text: ReadText
    """What is read, and what models are measured on."""

    @classmethod
    def prepare(cls, recipe: GeneralRecipe, open_model: Opener = Checkpoint.open) -> Self:
        teacher, kind = open_model(recipe.teacher), recipe.objective.kind
        model, tokenizer = load_model(teacher), teacher.required_tokenizer()
        member = cast(type[TercetConfig], recipe.objective.model_class.config_class).model_type
        require_outputs(model, recipe.teacher, kind, member)
        require_as_many_positions(model.config, recipe, "teacher")
        reader = TextReader(recipe.corpus, recipe.objective, tokenizer, recipe.training.seed)
        base = reader.build_objective(model.config)
        if not isinstance(base, TokenObjective):
            raise ValueError(
                f"objective is {kind}, which has targets other than tokens: use "
                f"masked_language_modeling, without sentence pairs"
            )
        texts = find_texts(recipe.corpus, recipe.objective, recipe.training)
        text = ReadText.of(texts, reader)
        return cls(teacher=teacher, model=model, open_model=open_model, recipe=recipe, base=base, text=text)

    def recipe_for(self, student: Student) -> GeneralRecipe:
        """Return how a student learns; without a teacher, from the copies of the text that a cache is of."""
        if student.is_taught:
            return self.recipe
        return replace(self.recipe, losses=(), objective_weight=1.0, sequences=None, on_policy=None)

    def require_learnable(self, student: Student, folder: Path) -> None:
        # building tells; a cache that is there has to be of this text and teacher
        general, source = self.recipe_for(student), self.text.source
        require_rereadable(self, general)
        accelerator = build_accelerator(general.training, folder)
        build_parts(self, student.recipe, general, source, accelerator)
        if general.cache is not None and general.losses and general.sequences is None:
            from .cache import require_same_cache

            require_same_cache(general, self.teacher, source, accelerator.device)

    def learn(self, student: Student, folder: Path, *, resume: bool) -> None:
        general = self.recipe_for(student)
        if is_finished(folder, general.training.steps):
            return
        session = Session.begin(folder, general.training, resume=resume)
        recipe = DistillationRecipe(output=str(folder), student=student.recipe, general=general)
        with main_first():
            source = source_of(self, general, session.accelerator.device)
        parts = build_parts(self, student.recipe, general, source, session.accelerator, recipe_data(recipe))
        is_main = session.accelerator.is_main_process
        if is_main:
            folder.mkdir(parents=True, exist_ok=True)
            write_recipe(recipe, folder)
            parts.text.tell(folder)
        wait_for_everyone()
        outcome = learn(session, parts)
        missing = cast(Distillation, parts.objective).teacher.missing
        if is_main and missing is not None:
            replace_text(folder / CACHE, json.dumps({"missing": missing}, indent=2) + "\n")
        keep_models(session, parts, outcome)
        wait_for_everyone()


def is_finished(folder: Path, steps: int) -> bool:
    """Return whether the run in a folder has taken its steps."""
    if not (file := folder / EVALUATION).exists():
        return False
    taken = json.loads(file.read_text(encoding="utf-8"))["step"]
    if taken > steps:
        raise ValueError(
            f"training.steps = {steps}, but {folder} has taken {taken}: resume with at least as "
            f"many, or start over with --overwrite"
        )
    return taken == steps


def build_parts(
    step: GeneralStep,
    student: StudentRecipe,
    general: GeneralRecipe,
    source: ExampleSource,
    accelerator: Accelerator,
    about: Mapping[str, Any] | None = None,
) -> Prepared:
    """Build what a student learns with, and what it learns of `source` and teacher."""
    learner, objective = build_setup(step, student, general, source, accelerator)
    text = replace(step.text, source=source, held_out=of_student(step.text.held_out, step.base))
    return Prepared(
        model=learner,
        objective=objective,
        data=cut_into_steps(text, objective, general.training, accelerator),
        width=learner.student.config.hidden_size,
        about={**(about or {}), "text": extent_of(source.epoch(0))},
        text=text,
        saved={MODEL: "student"},
    )


def of_student(held_out: HeldOut, base: TokenObjective) -> HeldOut:
    """Measure a learner by its student, whose best checkpoint is lowest in the objective's loss."""

    def measure(learner: nn.Module) -> dict[str, float]:
        return held_out.measure(cast(Learner, learner).student)

    return replace(held_out, measure=measure, criterion=lambda scores: scores[f"{base.term}/loss"])


def build_setup(
    step: GeneralStep,
    own: StudentRecipe,
    general: GeneralRecipe,
    source: ExampleSource,
    accelerator: Accelerator,
) -> tuple[Learner, Distillation]:
    """Build the student and what it learns of `source`; only of fixed copies, a teacher is cached.

    `general` says how, which may be otherwise than the step's, for comparison.
    """
    config = step.model.config
    student = first_student(own, step, general.training.seed)
    require_as_many_positions(student.config, general, "student")
    losses = losses_for(general.losses, student.config, config)
    ends = frame_ids(step.tokenizer)[1]
    on_policy = None
    if general.on_policy is not None:
        from .on_policy import build_on_policy

        on_policy = build_on_policy(general, step.base, losses, student, ends, accelerator)
    teacher = build_teacher(step, general, losses, source, accelerator)
    objective = Distillation(step.base, general.objective_weight, losses, teacher, on_policy)
    names = required_projections(losses, student.config, config)
    learner = Learner(student, objective.needs, names, config.hidden_size)
    if not objective.needs.logits:
        rest_unreached(learner, objective, source, accelerator.device)
    return learner, objective


def require_as_many_positions(config: TercetConfig, general: GeneralRecipe, who: str) -> None:
    """Raise a `ValueError` if sequences are longer than the teacher or the student has positions for."""
    length, remedy = general.corpus.sequence_length, f"choose another {who}"
    require_positions(config, length, "corpus.sequence_length", who, remedy)


def require_rereadable(step: GeneralStep, general: GeneralRecipe) -> None:
    """Raise a `ValueError` if the teacher is to read the whole text beforehand, and that is impossible."""
    beforehand = [key for key in ("cache", "sequences") if getattr(general, key) is not None]
    if beforehand and general.corpus.streaming:
        raise ValueError(
            f"{beforehand[0]}: the teacher processes the whole text beforehand, which a stream does "
            f"not allow: set corpus.streaming=false"
        )
    if beforehand and any(stage.sequence_length for stage in general.training.stages):
        raise ValueError(
            f"{beforehand[0]}: the teacher processes the text beforehand, in sequences of one "
            "length: leave sequence_length out of training.stages"
        )
    source = step.text.source
    if general.sequences is not None:
        from .sequences import require_pairs

        require_pairs(source)
    if general.cache is not None:
        from .cache import require_fixed

        if (windows := windows_of(source)) > 1:
            raise ValueError(
                f"cache: the text has so many documents that it is read in {windows} windows, of "
                "which a cache holds one: leave cache out, or name fewer files"
            )
        require_fixed(step.base, general.cache.copies)


def source_of(step: GeneralStep, general: GeneralRecipe, device: torch.device) -> ExampleSource:
    """Return what a run reads: the text, what the teacher writes instead, or fixed copies of either."""
    source = step.text.source
    if general.sequences is not None:
        from .sequences import written_pairs

        source = written_pairs(step.teacher, step.model, general.corpus, source, general.sequences, device)
    if general.cache is None:
        return source
    from .cache import FixedCopies

    return FixedCopies(source, general.cache.copies)


def build_teacher(
    step: GeneralStep,
    general: GeneralRecipe,
    losses: Sequence[DistillationLoss],
    source: ExampleSource,
    accelerator: Accelerator,
) -> Teacher:
    """Return a teacher that reads along or, of fixed copies, one that has read them before."""
    device = accelerator.device
    if general.cache is not None and losses:
        from .cache import FixedCopies, cached_teacher

        for loss in losses:
            if (reason := loss.refusal(is_complete=general.cache.top_k is None)) is not None:
                raise ValueError(f"cache: {reason}; leave cache out, or the loss")
        if isinstance(source, FixedCopies):
            with main_first():
                return cached_teacher(general, step.teacher, step.model, step.base, losses, source, device)
    return LiveTeacher(step.model, required_outputs(losses), device, general.training.precision)


def rest_unreached(
    learner: Learner, objective: Distillation, source: ExampleSource, device: torch.device
) -> None:
    """Keep weights as they are that no term depends on, since several processes wait for all gradients.

    Such are a head where nothing is predicted, and all behind the last queries where only these are compared.
    They are found by learning from two examples once.
    """
    learner.to(device)
    examples = source.epoch(0)
    batch = objective.collate(pick(examples, np.arange(min(2, len(examples)))), 0)
    with evaluation_mode(learner):
        total = torch.stack([*objective.losses(learner, on_device(batch, device)).values()]).sum()
    parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    for parameter, gradient in zip(
        parameters, torch.autograd.grad(total, parameters, allow_unused=True), strict=True
    ):
        parameter.requires_grad_(gradient is not None)


def first_student(recipe: StudentRecipe, step: GeneralStep, seed: int) -> TercetPreTrainedModel:
    """Make a student of the teacher, or load the one that a recipe names, which has the same vocabulary."""
    teacher, objective = step.model.config, step.recipe.objective
    if recipe.path is None:
        model_class = cast(type[TercetPreTrainedModel], objective.model_class)  # as the teacher is one
        return build_student(recipe, step.model, model_class, seed)
    own = step.open_model(recipe.path)
    model = load_model(own)
    require_same_vocabulary(step.tokenizer, own.required_tokenizer())
    if model.config.vocab_size != teacher.vocab_size:
        raise ValueError(
            f"{recipe.path} has embeddings for {model.config.vocab_size:,} tokens and the teacher for "
            f"{teacher.vocab_size:,}: make them equal with resize_token_embeddings"
        )
    if not isinstance(model, objective.model_class):
        raise ValueError(
            f"student.path {recipe.path} is a {type(model).__name__}, but {objective.kind} needs a "
            f"{objective.model_class.__name__}: set student.path to such a model"
        )
    return model
