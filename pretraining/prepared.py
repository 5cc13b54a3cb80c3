"""What a pretraining run consists of, before it begins: every part is built once, and checked on the way.

recipe -> find_inputs -> Inputs                 what needs no text is checked first; the recipe ends here
                           |
                        prepare -> Prepared     tokenizer, model, objective, examples cut into steps
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator
from transformers import PreTrainedTokenizerBase

from ..configs.recipe import recipe_data
from ..data.cache import cache_folder
from ..data.documents import EMBEDDED
from ..data.held_out_documents import warn_of_overlap, warn_of_shared_documents
from ..data.mixed_documents import single_texts
from ..data.prepared import PreparedDocuments
from ..data.steps.examples import Examples, ExampleSource, left_out_of
from ..data.steps.exchange import main_first
from ..data.steps.objective import Objective
from ..data.tokenizers.tokenizer import load_tokenizer
from ..modeling.saved.checkpoint import Opener, opening_once
from ..training.evaluation import HeldOut
from ..training.learning import Parts
from ..training.recipe import EMA, MEAN, StageRecipe, TrainingRecipe
from ..training.stages import prepare_data
from .model import FirstModel, first_model
from .objectives.base_recipe import BaseObjectiveRecipe
from .recipe import CorpusRecipe, PretrainingRecipe, TokenizerRecipe, listed
from .text import (
    ReadText,
    TextReader,
    Texts,
    open_texts,
    passes_of,
    require_enough_text,
    tokenizer_of_text,
)
from .tokenizer import TokenizerSource


@dataclass(frozen=True, kw_only=True)
class Prepared(Parts):
    """What learns from text, with what is kept of it."""

    tokenizer: PreTrainedTokenizerBase
    text: ReadText
    """What the run reads, and is measured on."""
    saved: Mapping[str, str]
    """Folders of the finished models, and which part of the model each is; the empty name is all of it."""


@dataclass(frozen=True)
class Inputs:
    """What a recipe names, found and checked; no text has been read."""

    model: FirstModel
    """What the run begins with."""
    tokenizer: TokenizerSource
    """What cuts its text into tokens."""
    texts: Texts
    """The documents of both splits."""
    corpus: CorpusRecipe
    """How they are read."""
    objective: BaseObjectiveRecipe
    """What is learned from them."""
    training: TrainingRecipe
    """How the model learns."""
    about: Mapping[str, Any]
    """The whole recipe as plain data, kept with the checkpoints."""

    @property
    def former_tokenizer(self) -> PreTrainedTokenizerBase | None:
        """The tokenizer that the run changes, if there is one."""
        extended = self.tokenizer.named if self.tokenizer.options.is_extended else None
        return self.model.former_tokenizer or extended


def find_inputs(recipe: PretrainingRecipe) -> Inputs:
    """Check everything that needs no text, which may take long to read; find the text.

    Raises:
        ValueError: Parts of the recipe do not fit each other, or the tokenizer cannot be loaded.
        FileNotFoundError: A file that it names does not exist.
    """
    corpus, objective, training = recipe.corpus, recipe.objective, recipe.training
    training.require_consistent()
    for stage in training.stages:
        require_shorter(stage.sequence_length or 1, corpus.sequence_length)
    open_model = opening_once()
    model = first_model(recipe.model, objective, corpus, open_model)
    texts = open_texts(corpus, objective)
    (learned, *_), (measured, *_) = texts["train"], texts["validation"]
    if training.revisions == "babylm" and isinstance(learned, PreparedDocuments):
        learned.refuse("training.revisions is babylm, which counts words; a number of steps does not")
    if corpus.validation == EMBEDDED and EMBEDDED not in listed(corpus.resolve(corpus.train)):
        warnings.warn(
            f"corpus.validation is {EMBEDDED}, the embedded corpus, and corpus.train another one: scores say "
            "little of yours; name held-out text of its kind with corpus.validation=...",
            stacklevel=2,
        )
    for one, other in product(single_texts(learned), single_texts(measured)):
        warn_of_overlap(one, other, cache_folder(corpus.cache))
    tokenizer = find_tokenizer(recipe.tokenizer, recipe.model.path, corpus, objective, texts, open_model)
    return Inputs(model, tokenizer, texts, corpus, objective, training, recipe_data(recipe))


def find_tokenizer(
    options: TokenizerRecipe,
    model: str | None,
    corpus: CorpusRecipe,
    objective: BaseObjectiveRecipe,
    texts: Texts,
    open_model: Opener,
) -> TokenizerSource:
    """Find the tokenizer that a recipe names, or by which its text was prepared, and the terms that it gets.

    Args:
        options: Of the tokenizer.
        model: Name of a model that goes on learning.
        corpus: Of the run.
        objective: Of the run.
        texts: What a tokenizer is trained on.
        open_model: Finds the model by its name.

    Raises:
        ValueError: It cannot be loaded.
        FileNotFoundError: It is not there, or the file of terms.
    """
    path = tokenizer_of_text(corpus) if options.path is None else options.path
    is_of_model = path is not None and path == model
    folder = open_model(path).folder if path is not None and is_of_model else None
    source = TokenizerSource(
        options,
        str(options.path or corpus.train),
        None if path is None else load_tokenizer(path, folder),
        is_of_model,
        texts["train"],
        objective,
        () if corpus.control_tokens == "own" else corpus.control_tokens,
        corpus.cache,
    )
    _ = source.terms  # they are there
    return source


def prepare(inputs: Inputs, accelerator: Accelerator, kept_tokenizer: Path | None) -> Prepared:
    """Read the text and build the parts of a run; nothing is written outside the cache.

    Args:
        inputs: What `find_inputs` has found.
        accelerator: Knows this process's share of the steps.
        kept_tokenizer: Folder of a tokenizer that an earlier command has trained for this run, if any.

    Raises:
        ValueError: Text, tokenizer, model and recipe do not fit each other.
    """
    corpus, training, texts = inputs.corpus, inputs.training, inputs.texts
    with main_first():
        tokenizer = inputs.tokenizer.load_or_train(inputs.model, kept_tokenizer)
        reader = TextReader(corpus, inputs.objective, tokenizer, training.seed)
        if not (corpus.streaming or corpus.validation is None):
            (learned, *_), (measured, *_) = texts["train"], texts["validation"]
            warn_of_shared_documents(learned, measured, cache_folder(corpus.cache))
        make_source = reader.training_source(texts["train"])
        held_out = reader.held_out(texts["validation"])
        if (former := inputs.former_tokenizer) is not None:
            from .continuation import with_tokens_before

            held_out = with_tokens_before(held_out, texts["validation"], tokenizer, former, corpus.cache)
    model = inputs.model.build(tokenizer, training.seed)
    objective = reader.build_objective(model.config)
    require_names_of_their_own(held_out, objective)
    source = make_source(corpus.sequence_length)

    def source_of(stage: StageRecipe) -> ExampleSource:
        shares = () if stage.shares is None else (stage.shares,)
        return make_source(stage.sequence_length or corpus.sequence_length, *shares)

    data = prepare_data(
        source,
        objective,
        training,
        accelerator,
        source_of=source_of,
        held_out=held_out,
        is_stream=corpus.streaming,
    )
    require_enough_text(corpus, passes_of(data.stages, training.steps))
    examples = source.epoch(0)
    return Prepared(
        model=model,
        objective=objective,
        data=data,
        width=model.config.hidden_size,
        about={**inputs.about, "text": extent_of(examples)},
        is_trained=inputs.model.is_trained,
        tokenizer=tokenizer,
        text=ReadText(texts, held_out, left_out_of(examples)),
        saved=inputs.objective.saved,
    )


def require_names_of_their_own(held_out: HeldOut, objective: Objective) -> None:
    """Make sure that scores of a held-out text, which begin with its name, are not read as others.

    Raises:
        ValueError: A text is called as something else that has scores.
    """
    taken = {*objective.scored, EMA, MEAN, "left_out"}
    if bad := next((name for name in held_out.parts if name.partition("/")[0] in taken), None):
        raise ValueError(
            f"corpus.validation has a text of the name {bad}, with which other scores begin "
            f"({', '.join(sorted(taken))}): give it another name"
        )


def extent_of(examples: Examples) -> str:
    """Return how much text an epoch has."""
    lengths = examples.lengths
    return f"{len(lengths):,} examples of {int(np.sum(lengths)):,} tokens"


def require_shorter(sequence_length: int, longest: int) -> None:
    """Raise a `ValueError` if the sequences of a stage are longer than the run's."""
    if sequence_length > longest:
        raise ValueError(
            f"training.stages: sequence_length = {sequence_length} exceeds corpus.sequence_length = "
            f"{longest}: lower the stage's sequence_length, or raise corpus.sequence_length"
        )
