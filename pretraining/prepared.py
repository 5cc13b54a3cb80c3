"""What a pretraining run consists of, before it begins: every part is built once, and checked on the way.

recipe -> find_inputs -> Inputs                 what needs no text is checked first; the recipe ends here
                           |
                        prepare -> Prepared     tokenizer, model, objective, examples cut into steps

Distillation finds its text by `find_texts`, and cuts it into steps by `cut_into_steps`; its tokenizer is the
teacher's.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator
from transformers import PreTrainedTokenizerBase

from ..configs.recipe import recipe_data
from ..data.cache import cache_folder
from ..data.documents import EMBEDDED, single_texts
from ..data.held_out_documents import warn_of_overlap
from ..data.prepared import PreparedDocuments
from ..data.steps.examples import Examples, ExampleSource
from ..data.steps.exchange import main_first
from ..data.steps.objective import Objective
from ..data.tokenizers.tokenizer import load_tokenizer
from ..modeling.saved.checkpoint import Opener, opening_once
from ..training.evaluation import HeldOut
from ..training.learning import Parts
from ..training.recipe import EMA, MEAN, StageRecipe, TrainingRecipe
from ..training.stages import TrainingData, prepare_data
from .model import FirstModel, first_model
from .objectives.recipes import BaseObjectiveRecipe
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

    text: ReadText
    """What the run reads, and is measured on."""
    saved: Mapping[str, str]
    """Folders of the finished models, and which part of the model each is; the empty name is all of it."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """What has cut the text into tokens."""
        return self.text.reader.tokenizer


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
    """Check everything that needs no text, which may take long to read; find the text."""
    corpus, objective, training = recipe.corpus, recipe.objective, recipe.training
    open_model = opening_once()
    model = first_model(recipe.model, objective, corpus, open_model)
    texts = find_texts(corpus, objective, training)
    tokenizer = find_tokenizer(recipe.tokenizer, recipe.model.path, corpus, objective, texts, open_model)
    return Inputs(model, tokenizer, texts, corpus, objective, training, recipe_data(recipe))


def find_texts(corpus: CorpusRecipe, objective: BaseObjectiveRecipe, training: TrainingRecipe) -> Texts:
    """Find the documents of both splits; warn if they overlap, or have little in common."""
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
    return texts


def find_tokenizer(
    options: TokenizerRecipe,
    model: str | None,
    corpus: CorpusRecipe,
    objective: BaseObjectiveRecipe,
    texts: Texts,
    open_model: Opener,
) -> TokenizerSource:
    """Find the tokenizer that a recipe names, or by which its text was prepared, and the terms that it gets.

    It may be that of `model`, which goes on learning.
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
    """Read the text and build the parts of a run; nothing is written outside the cache."""
    training, texts = inputs.training, inputs.texts
    with main_first():
        tokenizer = inputs.tokenizer.load_or_train(inputs.model, kept_tokenizer)
        reader = TextReader(inputs.corpus, inputs.objective, tokenizer, training.seed)
        text = ReadText.of(texts, reader)
        if (former := inputs.former_tokenizer) is not None:
            from .continuation import with_tokens_before

            before = tokenizer, former, inputs.corpus.cache
            text = replace(text, held_out=with_tokens_before(text.held_out, texts["validation"], *before))
    model = inputs.model.build(tokenizer, training.seed)
    objective = reader.build_objective(model.config)
    require_names_of_their_own(text.held_out, objective)
    return Prepared(
        model=model,
        objective=objective,
        data=cut_into_steps(text, objective, training, accelerator),
        width=model.config.hidden_size,
        about={**inputs.about, "text": extent_of(text.source.epoch(0))},
        is_trained=inputs.model.is_trained,
        text=text,
        saved=inputs.objective.saved,
    )


def cut_into_steps(
    text: ReadText, objective: Objective, training: TrainingRecipe, accelerator: Accelerator
) -> TrainingData:
    """Cut a text into the steps of a run, and check that it is long enough for them."""
    corpus = text.reader.corpus

    def source_of(stage: StageRecipe) -> ExampleSource:
        shares = () if stage.shares is None else (stage.shares,)
        return text.make_source(stage.sequence_length or corpus.sequence_length, *shares)

    data = prepare_data(
        text.source,
        objective,
        training,
        accelerator,
        source_of=source_of,
        held_out=text.held_out,
        is_stream=corpus.streaming,
    )
    require_enough_text(corpus, passes_of(data.stages, training.steps))
    return data


def require_names_of_their_own(held_out: HeldOut, objective: Objective) -> None:
    """Make sure that scores of a held-out text, which begin with its name, are not read as others."""
    taken = {*objective.scored, EMA, MEAN, "left_out"}
    if bad := next((name for name in held_out.parts if name.partition("/")[0] in taken), None):
        raise ValueError(
            f"corpus.validation: the name {bad} is reserved for other scores ({', '.join(sorted(taken))}): "
            "give the text another name"
        )


def extent_of(examples: Examples) -> str:
    lengths = examples.lengths
    return f"{len(lengths):,} examples of {int(np.sum(lengths)):,} tokens"
