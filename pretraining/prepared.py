"""What a pretraining run consists of, before it begins: every part is built once, and checked on the way.

recipe -> find_inputs -> configuration, documents              what needs no text is checked first
                |
             prepare  -> tokenizer, model, objective, examples, cut into steps
"""

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path

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
from ..data.tokenizers.new_terms import read_terms
from ..data.tokenizers.tokenization import tokenized_corpus
from ..data.tokenizers.tokenizer import load_tokenizer
from ..modeling.saved.checkpoint import opening_once
from ..training.evaluation import HeldOut
from ..training.learning import Parts
from ..training.recipe import EMA, MEAN, StageRecipe
from ..training.stages import prepare_data
from .continuation import TOKENS, TOKENS_BEFORE, tell_of_replaced, told_of_tokens
from .model import build_config, build_model, former_tokenizer
from .recipe import PretrainingRecipe, listed
from .text import (
    Inputs,
    ReadText,
    build_held_out,
    context_of,
    named_tokenizer,
    open_texts,
    passes_of,
    require_enough_text,
    training_source,
)
from .tokenizer import load_or_train_tokenizer


@dataclass(frozen=True, kw_only=True)
class Prepared(Parts):
    """What learns from text, with what is kept of it."""

    tokenizer: PreTrainedTokenizerBase
    text: ReadText
    """What the run reads, and is measured on."""
    saved: Mapping[str, str]
    """Folders of the finished models, and which part of the model each is; the empty name is all of it."""


def find_inputs(recipe: PretrainingRecipe) -> Inputs:
    """Check everything that needs no text, which may take long to read; find the text.

    Raises:
        ValueError: Parts of the recipe do not fit each other, or the tokenizer cannot be loaded.
        FileNotFoundError: A file that it names does not exist.
    """
    recipe.training.require_consistent()
    for stage in recipe.training.stages:
        require_shorter(stage.sequence_length or 1, recipe.corpus.sequence_length)
    tell_of_replaced(recipe)
    open_model = opening_once()
    config, texts = build_config(recipe, open_model), open_texts(recipe)
    corpus = recipe.corpus
    if corpus.validation == EMBEDDED and EMBEDDED not in listed(corpus.resolve(corpus.train)):
        warnings.warn(
            f"corpus.validation is {EMBEDDED}, the embedded corpus, and corpus.train another one: scores say "
            "little of yours; name held-out text of its kind with corpus.validation=...",
            stacklevel=2,
        )
    for learned, measured in product(*(single_texts(texts[split][0]) for split in ("train", "validation"))):
        warn_of_overlap(learned, measured, cache_folder(recipe.corpus.cache))
    if recipe.tokenizer.add is not None:
        read_terms(recipe.tokenizer.add)  # they are there
    path = named_tokenizer(recipe)
    folder = open_model(path).folder if path is not None and path == recipe.model.path else None
    return Inputs(config, texts, None if path is None else load_tokenizer(path, folder), open_model)


def prepare(
    recipe: PretrainingRecipe, inputs: Inputs, accelerator: Accelerator, trained_tokenizer: Path | None
) -> Prepared:
    """Read the text and build the parts of a run; nothing is written outside the cache.

    Args:
        recipe: Of the run.
        inputs: What `find_inputs` has found.
        accelerator: Knows this process's share of the steps.
        trained_tokenizer: Folder of a tokenizer that an earlier command has trained for this run, if any.

    Raises:
        ValueError: Text, tokenizer, model and recipe do not fit each other.
    """
    with main_first():
        tokenizer = load_or_train_tokenizer(recipe, inputs, trained_tokenizer)
        if not (recipe.corpus.streaming or recipe.corpus.validation is None):
            (learned, *_), (measured, *_) = inputs.texts["train"], inputs.texts["validation"]
            warn_of_shared_documents(learned, measured, cache_folder(recipe.corpus.cache))
        make_source = training_source(recipe, inputs.texts["train"], tokenizer)
        held_out = build_held_out(recipe, inputs.texts["validation"], tokenizer)
        held_out = with_tokens_before(recipe, inputs, tokenizer, held_out)
    model = build_model(recipe, tokenizer, inputs.config, inputs.open_model)
    objective = recipe.objective.build(context_of(recipe, tokenizer, model.config))
    require_names_of_their_own(held_out, objective)
    source = make_source(recipe.corpus.sequence_length)

    def source_of(stage: StageRecipe) -> ExampleSource:
        shares = () if stage.shares is None else (stage.shares,)
        return make_source(stage.sequence_length or recipe.corpus.sequence_length, *shares)

    data = prepare_data(
        source,
        objective,
        recipe.training,
        accelerator,
        source_of=source_of,
        held_out=held_out,
        is_stream=recipe.corpus.streaming,
    )
    require_enough_text(recipe.corpus, passes_of(data.stages, recipe.training.steps))
    examples = source.epoch(0)
    return Prepared(
        model=model,
        objective=objective,
        data=data,
        width=model.config.hidden_size,
        about=recipe_data(recipe) | {"text": extent_of(examples)},
        is_trained=recipe.model.path is not None,
        tokenizer=tokenizer,
        text=ReadText(inputs.texts, held_out, left_out_of(examples)),
        saved=recipe.objective.saved,
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


def with_tokens_before(
    recipe: PretrainingRecipe, inputs: Inputs, tokenizer: PreTrainedTokenizerBase, held_out: HeldOut
) -> HeldOut:
    """Count the tokens of the held-out text by the tokenizer that a run changes, and tell of it."""
    former = former_tokenizer(recipe, inputs.open_model) or (
        inputs.tokenizer if recipe.tokenizer.is_extended else None
    )
    if former is None or not former.is_fast or former.get_vocab() == tokenizer.get_vocab():
        return held_out
    texts = [*chain.from_iterable(map(single_texts, inputs.texts["validation"]))]
    if any(isinstance(each, PreparedDocuments) for each in texts):  # no text to count anew
        return held_out
    now, earlier = (
        sum(len(tokenized_corpus(each, one, recipe.corpus.cache).tokens) for each in texts)
        for one in (tokenizer, former)
    )
    held_out = replace(held_out, about={**held_out.about, TOKENS: now, TOKENS_BEFORE: earlier})
    print(told_of_tokens(held_out.about), file=sys.stderr, flush=True)
    return held_out


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
