"""The step on raw text before it runs: teacher, text and objective, then student and losses of each run.

prepare_general -> teacher, text, objective                  what all runs of the step have in common
      |
 build_setup    -> student, losses, cached or live teacher   what one run of it learns with

Sequence-level distillation: the teacher's own translations are what the student learns to write.

(Kim and Rush, 2016, section 3.2.) What its beams find most probable is simpler than what people wrote, and
written once: the tokenized translations lie in the cache beside the corpus they are of.

Shapes: D documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from accelerate import Accelerator
from transformers import PreTrainedTokenizerBase

from ..data.cache import cache_folder, made_once, name_of
from ..data.chunks import ParallelPairs
from ..data.corpus import TokenizedCorpus, offsets, save_corpus, token_kind
from ..data.files.bad_records import Tally
from ..data.steps.examples import ExampleSource, pick
from ..data.steps.exchange import main_first
from ..data.steps.objective import on_device
from ..data.steps.windows import windows_of
from ..data.tokenizers.special_tokens import required_token_id
from ..data.tokenizers.tokenizer import frame_ids
from ..modeling import TercetConfig, TercetPreTrainedModel
from ..modeling.generation.writing import write
from ..modeling.saved.checkpoint import Checkpoint, Opener
from ..pretraining.model import require_positions
from ..pretraining.recipe import ModelRecipe, PretrainingRecipe, TokenizerRecipe
from ..pretraining.text import Texts, build_held_out, context_of, open_texts, training_source
from ..training.devices.precision import build_accelerator, choose_precision
from ..training.evaluation import HeldOut, evaluation_mode
from ..training.stages import prepare_data
from ..training.token_objective import TokenObjective
from .cache import (
    Binding,
    CachedTeacher,
    FixedCopies,
    binding_of,
    cache_place,
    hash_of_examples,
    require_fixed,
    write_cache,
)
from .loss_recipes import build_losses, require_cached, required_projections
from .losses import DistillationLoss, SoftTargetLoss
from .model_outputs import Learner, RequiredOutputs
from .objective import Distillation, Teacher, required_outputs
from .on_policy import build_on_policy
from .recipe import CacheRecipe, GeneralRecipe, StudentRecipe
from .student import build_student
from .teacher import LiveTeacher, load_model, moved, require_outputs, require_same_vocabulary


def written_pairs(
    step: "PreparedGeneralStep", source: ExampleSource, num_beams: int, device: torch.device
) -> ParallelPairs:
    """Replace the targets of pairs by what a teacher writes for their sources, or find it in the cache.

    Args:
        step: Has the teacher, says how long targets may be, and where the cache is.
        source: Pairs.
        num_beams: Targets that it follows at once.
        device: Where it writes.

    Raises:
        ValueError: There are no pairs.
    """
    source = require_pairs(source)
    corpus = step.recipe.corpus
    longest = corpus.sequence_length
    data = hash_of_examples(FixedCopies(source, 1))
    name = name_of(step.teacher.hash, data, num_beams, longest)
    folder = cache_folder(corpus.cache) / "written" / name
    made_once(folder, lambda target: write_targets(target, step, source, num_beams, longest, device))
    return ParallelPairs(source.source, TokenizedCorpus.load(folder), longest, source.closing.tolist())


def require_pairs(source: ExampleSource) -> ParallelPairs:
    """Return a source of pairs, or raise a `ValueError`: of others, a teacher has nothing to write."""
    if isinstance(source, ParallelPairs):
        return source
    raise ValueError(
        "general.sequences: the teacher generates targets for sources, which only translation has: leave it "
        "out, or use translation"
    )


def write_targets(
    folder: Path,
    step: "PreparedGeneralStep",
    pairs: ParallelPairs,
    num_beams: int,
    longest: int,
    device: torch.device,
) -> None:
    """Write a corpus of a teacher's targets, a document for each source; none for those that are no pair."""
    pad_id = required_token_id(step.tokenizer, "pad", "sequence-level distillation")
    sources = [pairs[index]["input_ids"] for index in range(len(pairs))]
    model = moved(step.model, device).eval()
    written = write(model, sources, pad_id, num_beams=num_beams, max_new_tokens=longest - len(pairs.closing))
    documents: list[np.ndarray] = [np.empty(0, dtype=np.int64)] * pairs.target.num_documents
    start = model.config.decoder_start_token_id
    for document, ids in zip(pairs.documents, written, strict=True):
        documents[document] = own_tokens(ids, start, pairs.closing, pad_id)
    vocabulary = model.config.vocab_size
    save_corpus([as_corpus(documents, vocabulary)], folder, vocabulary, Tally())


def own_tokens(ids: np.ndarray, start: int | None, closing: np.ndarray, pad_id: int) -> np.ndarray:
    """Take from what was written the start, and what follows the end of text.

    >>> own_tokens(np.array([9, 5, 6, 1, 0, 0]), 9, np.array([1]), 0).tolist()
    [5, 6]
    """
    ids = ids[1:] if start is not None and len(ids) and ids[0] == start else ids
    ends = np.flatnonzero(np.isin(ids, [*closing.tolist(), pad_id]))
    return ids[: ends[0]] if len(ends) else ids


def as_corpus(documents: list[np.ndarray], vocabulary_size: int) -> TokenizedCorpus:
    """Lay documents end to end, each as one sentence; their bytes are not known, nor needed."""
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    tokens = np.concatenate(documents).astype(token_kind(vocabulary_size))
    return TokenizedCorpus(
        tokens=tokens,
        word_starts=np.zeros(len(tokens), dtype=bool),
        sentence_offsets=offsets(lengths),
        document_offsets=np.arange(len(documents) + 1, dtype=np.int64),
        document_bytes=np.zeros(len(documents), dtype=np.int64),
    )


@dataclass(frozen=True)
class PreparedGeneralStep:
    """What all runs of a recipe's step on raw text have in common."""

    recipe: GeneralRecipe
    teacher: Checkpoint
    """The model to be imitated, on disk."""
    model: TercetPreTrainedModel
    """The same, loaded."""
    base: TokenObjective
    """What is learned from the text itself."""
    source: ExampleSource
    """What is read."""
    held_out: HeldOut
    """What models are measured on."""
    texts: Texts
    """The documents of both splits."""
    open_model: Opener
    """Finds further models by their names."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The teacher's."""
        return self.teacher.required_tokenizer()


def prepare_general(
    recipe: GeneralRecipe, folder: Path, open_model: Opener = Checkpoint.open
) -> PreparedGeneralStep:
    """Load the teacher and its text, and make sure that they fit what is to be learned.

    Args:
        recipe: Names them.
        folder: Of the run; nothing is written there.
        open_model: Finds models by their names.

    Raises:
        FileNotFoundError: A file or model is not there.
        ValueError: Teacher, text and objective do not fit each other.
    """
    kind, corpus = recipe.objective.kind, recipe.corpus
    teacher = open_model(recipe.teacher)
    model, tokenizer = load_model(teacher), teacher.required_tokenizer()
    model_class = recipe.objective.model_class
    member = cast(type[TercetConfig], model_class.config_class).model_type
    require_outputs(model, recipe.teacher, kind, member)
    require_positions(model.config, corpus.sequence_length)
    pretraining = PretrainingRecipe(
        model=ModelRecipe(path=str(teacher.folder)),
        tokenizer=TokenizerRecipe(path=str(teacher.folder)),
        corpus=corpus,
        objective=recipe.objective,
        training=recipe.training,
        output=str(folder),
    )
    base = recipe.objective.build(context_of(pretraining, tokenizer, model.config))
    if not isinstance(base, TokenObjective):
        raise ValueError(
            f"general.objective is {kind}, which has targets other than tokens: use "
            f"masked_language_modeling, without sentence pairs"
        )
    texts = open_texts(pretraining)
    source = training_source(pretraining, texts["train"], tokenizer)(corpus.sequence_length)
    held_out = build_held_out(pretraining, texts["validation"], tokenizer)
    return PreparedGeneralStep(recipe, teacher, model, base, source, held_out, texts, open_model)


def build_setup(
    step: PreparedGeneralStep,
    own: StudentRecipe,
    general: GeneralRecipe,
    source: ExampleSource,
    accelerator: Accelerator,
) -> tuple[Learner, Distillation]:
    """Build the student and what it learns of `source`; only of fixed copies, a teacher is cached.

    Args:
        step: What all runs have in common.
        own: Says which student learns.
        general: Says how, which may be otherwise than the step's, for comparison.
        source: What from.
        accelerator: Of the run.

    Raises:
        ValueError: The recipes do not fit the models.
    """
    config = step.model.config
    student = first_student(own, step, general.training.seed)
    require_positions(student.config, general.corpus.sequence_length)
    losses = build_losses(general.losses, student.config, config)
    ends = frame_ids(step.tokenizer)[1]
    on_policy = build_on_policy(general, step.base, losses, student, ends, accelerator)
    teacher = build_teacher(step, general, losses, source, accelerator)
    objective = Distillation(step.base, general.objective_weight, losses, teacher, on_policy)
    names = required_projections(losses, student.config, config)
    learner = Learner(student, objective.needs, names, config.hidden_size)
    if not objective.needs.logits:
        rest_unreached(learner, objective, source, accelerator.device)
    return learner, objective


def require_learnable(
    step: PreparedGeneralStep, own: StudentRecipe, general: GeneralRecipe, folder: Path
) -> None:
    """Make sure that a run will find nothing wrong with its student and its step; nothing is written.

    Raises:
        ValueError: They do not fit the models, the text or themselves.
    """
    require_rereadable(step, general)
    accelerator = build_accelerator(general.training, folder)
    _, objective = build_setup(step, own, general, step.source, accelerator)
    prepare_data(step.source, objective, general.training, accelerator, held_out=step.held_out)
    if general.cache is not None and general.losses and general.sequences is None:
        copies = FixedCopies(step.source, general.cache.copies)
        place, binding = cache_of(step, general.cache, copies, accelerator.device)
        if place.exists():
            CachedTeacher(place, binding, accelerator.device)


def require_rereadable(step: PreparedGeneralStep, general: GeneralRecipe) -> None:
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
        if (windows := windows_of(step.source)) > 1:
            raise ValueError(
                f"general.cache: the text has so many documents that it is read in {windows} windows, of "
                "which a cache holds one: leave general.cache out, or name fewer files"
            )
        require_fixed(step.base, general.cache.copies)


def source_of(step: PreparedGeneralStep, general: GeneralRecipe, device: torch.device) -> ExampleSource:
    """Return what a run reads: the text, what the teacher writes instead, or fixed copies of either.

    Raises:
        ValueError: The teacher can write nothing, or the text is corrupted anew whenever it is read.
    """
    require_rereadable(step, general)
    source = step.source
    if general.sequences is not None:
        source = written_pairs(step, source, general.sequences, device)
    return source if general.cache is None else FixedCopies(source, general.cache.copies)


def build_teacher(
    step: PreparedGeneralStep,
    general: GeneralRecipe,
    losses: Sequence[DistillationLoss],
    source: ExampleSource,
    accelerator: Accelerator,
) -> Teacher:
    """Return a teacher that reads along or, of fixed copies, one that has read them before.

    Raises:
        ValueError: A cache cannot give what losses compare, or is of another teacher or other data.
    """
    if general.cache is not None and losses:
        require_cached(losses, is_complete=general.cache.top_k is None)
        if isinstance(source, FixedCopies):
            with main_first():
                return cached_teacher(step, general.cache, losses, source, accelerator.device)
    return LiveTeacher(step.model, required_outputs(losses), accelerator.device, general.training.precision)


def cached_teacher(
    step: PreparedGeneralStep,
    recipe: CacheRecipe,
    losses: Sequence[DistillationLoss],
    source: FixedCopies,
    device: torch.device,
) -> CachedTeacher:
    """Let the teacher read the corpus, unless it has, and remember what it made of it.

    Raises:
        ValueError: What is remembered is of another teacher or other data.
    """
    temperatures = [loss.temperature for loss in losses if isinstance(loss, SoftTargetLoss)]
    folder, binding = cache_of(step, recipe, source, device)

    def write(target: Path) -> None:
        live = LiveTeacher(step.model, RequiredOutputs(logits=True), device, binding["products"])
        write_cache(target, live, step.base, source, recipe, binding, temperatures)

    made_once(folder, write, "another folder in general.cache.folder")
    moved(step.model, torch.device("cpu"))  # which leaves its place to the student
    return CachedTeacher(folder, binding, device)


def cache_of(
    step: PreparedGeneralStep, recipe: CacheRecipe, source: FixedCopies, device: torch.device
) -> tuple[Path, Binding]:
    """Return where a cache lies, and what it is of."""
    products = choose_precision(step.recipe.training.precision, device)
    binding = binding_of(step.teacher, source, step.recipe, recipe, products)
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
    batch = objective.collate(pick(examples, np.arange(min(2, len(examples)))), 0)
    with evaluation_mode(learner):
        total = torch.stack([*objective.losses(learner, on_device(batch, device)).values()]).sum()
    parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    for parameter, gradient in zip(
        parameters, torch.autograd.grad(total, parameters, allow_unused=True), strict=True
    ):
        parameter.requires_grad_(gradient is not None)


def first_student(recipe: StudentRecipe, step: PreparedGeneralStep, seed: int) -> TercetPreTrainedModel:
    """Make a student of the teacher, or load the one that a recipe names, which has the same vocabulary.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: The recipe does not fit the teacher, or vocabularies differ.
    """
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
