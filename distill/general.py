"""The step on raw text: a pretrained teacher reads along, or has read before, and the student learns.

teacher -> tokenizer -> corpus -> examples            what all runs of the step have in common
   |                                 |
   +-> student -> Distillation  -> fit -> model       a run: the student, or one that it is compared with
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ..configs.recipe import recipe_data
from ..modeling import TercetConfig, TercetPreTrainedModel
from ..pretraining.cache import made_once
from ..pretraining.held_out import build_held_out
from ..pretraining.model import MODELS, require_positions
from ..pretraining.objective_recipes import build_objective
from ..pretraining.output import EVALUATION, make_folder, write_recipe
from ..pretraining.recipe import ModelRecipe, PretrainingRecipe, TokenizerRecipe
from ..pretraining.run import build_source, extent, save
from ..pretraining.token_objective import TokenObjective
from ..pretraining.tokenizer import frame_ids
from ..training.circumstances import circumstances
from ..training.disk import replace_text
from ..training.evaluation import HeldOut
from ..training.examples import ExampleSource
from ..training.fit import Outcome, fit
from ..training.precision import build_accelerator
from ..training.sharding import whole_weights
from ..training.stages import build_stages, cut_held_out
from .cache import binding_of, cache_place, write_cache
from .cached_teacher import CachedTeacher
from .copies import Copies, require_fixed
from .objective import Distillation, needs_of
from .on_policy import build_on_policy
from .reading import Learner, Needs
from .recipe import CacheRecipe, DistillationRecipe, GeneralRecipe, StudentRecipe
from .sequences import written_pairs
from .signal_building import build_signals, projected, require_cached
from .signals import Signal, SoftTargets
from .student import build_student
from .teacher import LiveTeacher, Source, load_source, require_outputs, require_same_vocabulary

CACHE = "cache.json"
"""File in the folder of a run that says what a cached teacher lacks."""


@dataclass(frozen=True)
class GeneralStep:
    """What all runs of a recipe's step on raw text have in common."""

    recipe: GeneralRecipe
    teacher: Source
    base: TokenObjective
    """What is learned from the text itself."""
    source: ExampleSource
    """What is read."""
    held_out: HeldOut
    """What models are measured on."""
    pretraining: PretrainingRecipe
    """How the same would be said of pretraining."""


def prepare_general(recipe: GeneralRecipe, folder: Path) -> GeneralStep:
    """Load the teacher and its text, and make sure that they fit what is to be learned.

    Args:
        recipe: Names them.
        folder: Of the run; nothing is written there.

    Raises:
        FileNotFoundError: A file or model is not there.
        ValueError: Teacher, text and objective do not fit each other.
    """
    kind, corpus = recipe.objective.kind, recipe.corpus
    teacher = load_source(recipe.teacher)
    model_class = MODELS[kind]
    member = cast(type[TercetConfig], model_class.config_class).model_type
    require_outputs(teacher.model, recipe.teacher, kind, member)
    require_positions(teacher.model.config, corpus.sequence_length)
    pretraining = PretrainingRecipe(
        model=ModelRecipe(path=str(teacher.folder)),
        tokenizer=TokenizerRecipe(path=str(teacher.folder)),
        corpus=corpus,
        objective=recipe.objective,
        training=recipe.training,
        output=str(folder),
    )
    base = build_objective(
        recipe.objective,
        teacher.tokenizer,
        sequence_length=corpus.sequence_length,
        seed=recipe.training.seed,
        decoder_start_id=getattr(teacher.model.config, "decoder_start_token_id", None),
    )
    if not isinstance(base, TokenObjective):
        raise ValueError(
            f"general.objective is {kind}, which asks for more than tokens: DistilBERT learns "
            "masked_language_modeling, without next sentences"
        )
    source = build_source(pretraining, teacher.tokenizer)
    held_out = build_held_out(pretraining, teacher.tokenizer)
    return GeneralStep(recipe, teacher, base, source, held_out, pretraining)


def learn_general(
    step: GeneralStep, recipe: DistillationRecipe, folder: Path, *, resume: bool
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
        return told
    accelerator = build_accelerator(general.training, folder)
    with accelerator.main_process_first():
        source = source_of(step, general, accelerator.device)
    learner, objective = build_learning(step, recipe, source, accelerator)
    student = learner.student
    if accelerator.is_main_process:
        make_folder(folder)
        write_recipe(recipe, folder)
    accelerator.wait_for_everyone()
    outcome = fit(
        learner,
        objective,
        source,
        general.training,
        folder,
        accelerator,
        width=student.config.hidden_size,
        held_out=of_student(step.held_out, step.base),
        about=recipe_data(recipe) | {"text": extent(source)},
        resume=resume,
    )
    if outcome.interrupted_by is not None:
        raise KeyboardInterrupt(f"stopped by {outcome.interrupted_by}; continue with --resume")
    if isinstance(objective.teacher, CachedTeacher) and accelerator.is_main_process:
        told = {"missing": objective.teacher.missing}
        replace_text(folder / CACHE, json.dumps(told, indent=2) + "\n")
    keep_student(learner, step.teacher, folder, outcome, accelerator)
    told = results_of(folder)
    assert told is not None
    return told


def results_of(folder: Path) -> dict[str, Any] | None:
    """Read what a finished run came to, if there is one."""
    file = folder / EVALUATION
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def build_learning(
    step: GeneralStep, recipe: DistillationRecipe, source: ExampleSource, accelerator: Accelerator
) -> tuple[Learner, Distillation]:
    """Build the student and what it learns.

    Raises:
        ValueError: The recipe does not fit the models.
    """
    general = recipe.general
    assert general is not None
    config = step.teacher.model.config
    student = first_student(recipe.student, step, general.training.seed)
    signals = build_signals(general.signals, student.config, config)
    ends = frame_ids(step.teacher.tokenizer)[1]
    on_policy = build_on_policy(general, step.base, signals, student, ends, accelerator)
    teacher = LiveTeacher(step.teacher.model, needs_of(signals), accelerator.device)
    if general.cache is not None and signals:
        require_cached(signals, is_complete=general.cache.top_k is None)
        with accelerator.main_process_first():
            teacher = cached_teacher(step, general.cache, signals, source, accelerator.device)
    objective = Distillation(step.base, general.objective_weight, signals, teacher, on_policy)
    names = projected(signals, student.config, config)
    learner = Learner(student, objective.needs, names, config.hidden_size)
    build_stages(source, None, objective, general.training, accelerator)  # raises what is wrong
    assert step.held_out.source is not None
    cut_held_out(step.held_out.source, objective, general.training, accelerator).plan(0)
    return learner, objective


def source_of(step: GeneralStep, general: GeneralRecipe, device: torch.device) -> ExampleSource:
    """Give what a run reads: the text, what the teacher writes instead, or fixed copies of either.

    Raises:
        ValueError: The teacher can write nothing, or the text is corrupted anew whenever it is read.
    """
    source = step.source
    if general.sequences is not None:
        source = written_pairs(step.teacher, source, general.sequences, step.pretraining.corpus, device)
    if general.cache is not None:
        require_fixed(step.base)
        source = Copies(source, general.cache.copies)
    return source


def cached_teacher(
    step: GeneralStep,
    recipe: CacheRecipe,
    signals: Sequence[Signal],
    source: ExampleSource,
    device: torch.device,
) -> CachedTeacher:
    """Let the teacher read the corpus, unless it has, and remember what it made of it.

    Raises:
        ValueError: What is remembered is of another teacher or other data.
    """
    assert isinstance(source, Copies)
    temperatures = [signal.temperature for signal in signals if isinstance(signal, SoftTargets)]
    live = LiveTeacher(step.teacher.model, Needs(logits=True), device)
    binding = binding_of(step.teacher.folder, source, step.recipe, recipe)
    folder = cache_place(step.pretraining.corpus, recipe, binding)
    made_once(
        folder, lambda target: write_cache(target, live, step.base, source, recipe, binding, temperatures)
    )
    return CachedTeacher(folder, binding, device)


def first_student(recipe: StudentRecipe, step: GeneralStep, seed: int) -> TercetPreTrainedModel:
    """Make a student of the teacher, or load the one that a recipe names, which has the same vocabulary.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: The recipe does not fit the teacher, or vocabularies differ.
    """
    teacher, kind = step.teacher, step.recipe.objective.kind
    if recipe.path is None:
        return build_student(recipe, teacher.model, MODELS[kind], seed)
    own = load_source(recipe.path)
    require_same_vocabulary(teacher.tokenizer, own.tokenizer)
    if own.model.config.vocab_size != teacher.model.config.vocab_size:
        raise ValueError(
            f"{recipe.path} has vectors for {own.model.config.vocab_size:,} tokens and the teacher for "
            f"{teacher.model.config.vocab_size:,}: resize_token_embeddings makes them equal"
        )
    if not isinstance(own.model, MODELS[kind]):
        raise ValueError(
            f"student.path {recipe.path} is a {type(own.model).__name__}, but {kind} is learned by a "
            f"{MODELS[kind].__name__}: name such a model"
        )
    return own.model


def of_student(held_out: HeldOut, base: TokenObjective) -> HeldOut:
    """Measure a learner by its student, whose best checkpoint is lowest in the objective's loss."""

    def measure(learner: nn.Module) -> dict[str, float]:
        return held_out.measure(cast(Learner, learner).student)

    return replace(held_out, measure=measure, criterion=lambda scores: scores[f"{base.term}/loss"])


def keep_student(
    learner: Learner, teacher: Source, folder: Path, outcome: Outcome, accelerator: Accelerator
) -> None:
    """Write the finished student with the teacher's tokenizer, and what it came to."""
    weights = of_prefix(whole_weights(learner, accelerator), "student.")
    if accelerator.is_main_process:
        told = circumstances(learner, accelerator)
        save(folder, learner.student, weights, teacher.tokenizer, outcome, told)
    accelerator.wait_for_everyone()


def of_prefix(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Take the tensors whose names begin with a prefix, and take it off."""
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
