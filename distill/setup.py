"""What a run of the step on raw text learns with: a student, a teacher, signals, and what both read.

GeneralStep -> student -> signals -> Distillation
     |                                    |
     +-> examples -> cached teacher  -----+      or one that reads along
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator

from ..modeling import TercetPreTrainedModel
from ..pretraining.model import require_positions
from ..text.cache import made_once
from ..text.tokenizer import frame_ids
from ..training.evaluation import evaluation_mode
from ..training.examples import ExampleSource, pick
from ..training.objective import on_device
from ..training.precision import build_accelerator, choose_precision
from ..training.stages import prepare_data
from .cache import Binding, binding_of, cache_place, write_cache
from .cached_teacher import CachedTeacher
from .copies import Copies, require_fixed
from .general_step import GeneralStep
from .objective import Distillation, Teacher, needs_of
from .on_policy import build_on_policy
from .reading import Learner, Needs
from .recipe import CacheRecipe, DistillationRecipe, GeneralRecipe, StudentRecipe
from .sequences import require_pairs, written_pairs
from .signal_building import build_signals, projected, require_cached
from .signals import Signal, SoftTargets
from .student import build_student
from .teacher import LiveTeacher, load_source, moved, require_same_vocabulary


def build_setup(
    step: GeneralStep, recipe: DistillationRecipe, source: ExampleSource, accelerator: Accelerator
) -> tuple[Learner, Distillation]:
    """Build the student and what it learns of `source`; only of fixed copies, a teacher is cached.

    Raises:
        ValueError: The recipe does not fit the models.
    """
    general = recipe.general
    assert general is not None
    config = step.teacher.model.config
    student = first_student(recipe.student, step, general.training.seed)
    require_positions(student.config, general.corpus.sequence_length)
    signals = build_signals(general.signals, student.config, config)
    ends = frame_ids(step.teacher.tokenizer)[1]
    on_policy = build_on_policy(general, step.base, signals, student, ends, accelerator)
    teacher = build_teacher(step, general, signals, source, accelerator)
    objective = Distillation(step.base, general.objective_weight, signals, teacher, on_policy)
    names = projected(signals, student.config, config)
    learner = Learner(student, objective.needs, names, config.hidden_size)
    if not objective.needs.logits:
        rest_unreached(learner, objective, source, accelerator.device)
    return learner, objective


def require_learnable(step: GeneralStep, recipe: DistillationRecipe, folder: Path) -> None:
    """Make sure that a run will find nothing wrong with its recipe; nothing is written.

    Raises:
        ValueError: The recipe does not fit the models, the text or itself.
    """
    general = recipe.general
    assert general is not None
    require_rereadable(step, general)
    accelerator = build_accelerator(general.training, folder)
    _, objective = build_setup(step, recipe, step.source, accelerator)
    prepare_data(step.source, objective, general.training, accelerator, held_out=step.held_out)
    if general.cache is not None and general.sequences is None:
        copies = Copies(step.source, general.cache.copies)
        place, binding = cache_of(step, general.cache, copies, accelerator.device)
        if place.exists():
            CachedTeacher(place, binding, accelerator.device)


def require_rereadable(step: GeneralStep, general: GeneralRecipe) -> None:
    """Raise a `ValueError` if the teacher is to read the whole text beforehand, and that is impossible."""
    beforehand = [key for key in ("cache", "sequences") if getattr(general, key) is not None]
    if beforehand and general.corpus.streaming:
        raise ValueError(
            f"general.{beforehand[0]}: the teacher processes the whole text beforehand, which a stream does "
            f"not allow: set general.corpus.streaming=false"
        )
    if general.sequences is not None:
        require_pairs(step.source)
    if general.cache is not None:
        require_fixed(step.base, general.cache.copies)


def source_of(step: GeneralStep, general: GeneralRecipe, device: torch.device) -> ExampleSource:
    """Give what a run reads: the text, what the teacher writes instead, or fixed copies of either.

    Raises:
        ValueError: The teacher can write nothing, or the text is corrupted anew whenever it is read.
    """
    require_rereadable(step, general)
    source = step.source
    if general.sequences is not None:
        source = written_pairs(step.teacher, source, general.sequences, step.recipe.corpus, device)
    return source if general.cache is None else Copies(source, general.cache.copies)


def build_teacher(
    step: GeneralStep,
    general: GeneralRecipe,
    signals: Sequence[Signal],
    source: ExampleSource,
    accelerator: Accelerator,
) -> Teacher:
    """Give a teacher that reads along or, of fixed copies, one that has read them before.

    Raises:
        ValueError: A cache cannot give what signals compare, or is of another teacher or other data.
    """
    if general.cache is not None and signals:
        require_cached(signals, is_complete=general.cache.top_k is None)
        if isinstance(source, Copies):
            with accelerator.main_process_first():
                return cached_teacher(step, general.cache, signals, source, accelerator.device)
    return LiveTeacher(step.teacher.model, needs_of(signals), accelerator.device, general.training.precision)


def cached_teacher(
    step: GeneralStep,
    recipe: CacheRecipe,
    signals: Sequence[Signal],
    source: Copies,
    device: torch.device,
) -> CachedTeacher:
    """Let the teacher read the corpus, unless it has, and remember what it made of it.

    Raises:
        ValueError: What is remembered is of another teacher or other data.
    """
    temperatures = [signal.temperature for signal in signals if isinstance(signal, SoftTargets)]
    folder, binding = cache_of(step, recipe, source, device)

    def write(target: Path) -> None:
        live = LiveTeacher(step.teacher.model, Needs(logits=True), device, binding["products"])
        write_cache(target, live, step.base, source, recipe, binding, temperatures)

    made_once(folder, write)
    moved(step.teacher.model, torch.device("cpu"))  # which leaves its place to the student
    return CachedTeacher(folder, binding, device)


def cache_of(
    step: GeneralStep, recipe: CacheRecipe, source: Copies, device: torch.device
) -> tuple[Path, Binding]:
    """Say where a cache lies, and what it is of."""
    products = choose_precision(step.recipe.training.precision, device)
    binding = binding_of(step.teacher.folder, source, step.recipe, recipe, products)
    return cache_place(step.recipe.corpus, recipe, binding), binding


def rest_unreached(
    learner: Learner, objective: Distillation, source: ExampleSource, device: torch.device
) -> None:
    """Keep weights as they are that no term depends on, since several processes wait for all gradients.

    Such are a head where nothing is predicted, and all behind the last queries where only these are compared.
    They are found by learning from two examples once.
    """
    learner.to(device)
    examples = source.epoch(0)
    batch = objective.collate(pick(examples, np.arange(min(2, len(examples)))), np.random.default_rng(0))
    with evaluation_mode(learner):
        total = torch.stack([*objective.losses(learner, on_device(batch, device)).values()]).sum()
    parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    for parameter, gradient in zip(
        parameters, torch.autograd.grad(total, parameters, allow_unused=True), strict=True
    ):
        parameter.requires_grad_(gradient is not None)


def first_student(recipe: StudentRecipe, step: GeneralStep, seed: int) -> TercetPreTrainedModel:
    """Make a student of the teacher, or load the one that a recipe names, which has the same vocabulary.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: The recipe does not fit the teacher, or vocabularies differ.
    """
    teacher, objective = step.teacher, step.recipe.objective
    if recipe.path is None:
        return build_student(recipe, teacher.model, objective.model_class, seed)
    own = load_source(recipe.path)
    require_same_vocabulary(teacher.tokenizer, own.tokenizer)
    if own.model.config.vocab_size != teacher.model.config.vocab_size:
        raise ValueError(
            f"{recipe.path} has embeddings for {own.model.config.vocab_size:,} tokens and the teacher for "
            f"{teacher.model.config.vocab_size:,}: make them equal with resize_token_embeddings"
        )
    if not isinstance(own.model, objective.model_class):
        raise ValueError(
            f"student.path {recipe.path} is a {type(own.model).__name__}, but {objective.kind} needs a "
            f"{objective.model_class.__name__}: set student.path to such a model"
        )
    return own.model
