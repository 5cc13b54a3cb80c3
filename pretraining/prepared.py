"""What a pretraining run consists of, before it begins: every part is built once, and checked on the way.

recipe -> find_inputs -> configuration, documents              what needs no text is checked first
                |
             prepare  -> tokenizer, model, objective, examples, cut into steps
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from accelerate import Accelerator
from transformers import PreTrainedTokenizerBase

from ..modeling import NeuralConfig
from ..objectives.base_recipe import Trainable
from ..text.cache import cache_folder, made_once, name_of
from ..text.documents import Documents
from ..text.texts_read import warn_of_overlap
from ..text.tokenizer import fit_frame, load_tokenizer, train_tokenizer
from ..training.evaluation import HeldOut
from ..training.examples import Examples, LeftOut, left_out_of
from ..training.objective import Objective
from ..training.stages import TrainingData, prepare_data, require_consistent
from .model import build_config, build_model, most_positions
from .recipe import PretrainingRecipe
from .text import Texts, build_held_out, context_of, open_texts, training_source

EDITION = 1
"""To be raised whenever the same text gives another tokenizer."""


@dataclass(frozen=True)
class Inputs:
    """What a recipe names, found and checked; no text has been read."""

    config: NeuralConfig
    """Of the model, before the tokenizer has set the size of the vocabulary."""
    texts: Texts
    """The documents of both splits."""
    tokenizer: PreTrainedTokenizerBase | None
    """The existing one, if the recipe names one."""


@dataclass(frozen=True)
class Prepared:
    """The parts of a run."""

    tokenizer: PreTrainedTokenizerBase
    model: Trainable
    """With the weights that it begins with."""
    objective: Objective
    data: TrainingData
    """Training and held-out examples, cut into steps."""
    held_out: HeldOut
    """What the run is measured on."""
    extent: str
    """How much training text there is, by which a resumed run notices that it is another one."""
    left_out: Mapping[str, Sequence[LeftOut]]
    """What is in no example, of each split; of a stream, what is not in its first window."""


def find_inputs(recipe: PretrainingRecipe) -> Inputs:
    """Check everything that needs no text, which may take long to read; find the text.

    Raises:
        ValueError: Parts of the recipe do not fit each other, or the tokenizer cannot be loaded.
        FileNotFoundError: A file that it names does not exist.
    """
    require_consistent(recipe.training)
    for stage in recipe.training.stages:
        require_shorter(stage.sequence_length or 1, recipe.corpus.sequence_length)
    config, texts = build_config(recipe), open_texts(recipe)
    warn_of_overlap(texts["train"][0], texts["validation"][0], cache_folder(recipe.corpus.cache))
    path = recipe.tokenizer.path
    return Inputs(config, texts, None if path is None else load_tokenizer(path))


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
    with accelerator.main_process_first():
        tokenizer = load_or_train_tokenizer(recipe, inputs, trained_tokenizer)
        source_of_length = training_source(recipe, inputs.texts["train"], tokenizer)
        held_out = build_held_out(recipe, inputs.texts["validation"], tokenizer)
    model = build_model(recipe, tokenizer, inputs.config)
    objective = recipe.objective.build(context_of(recipe, tokenizer, model.config))
    source = source_of_length(recipe.corpus.sequence_length)
    data = prepare_data(
        source,
        objective,
        recipe.training,
        accelerator,
        source_of_length=source_of_length,
        held_out=held_out,
        is_stream=recipe.corpus.streaming,
    )
    examples = source.epoch(0)
    left_out = {"train": left_out_of(examples), "validation": held_out.left_out}
    return Prepared(tokenizer, model, objective, data, held_out, extent_of(examples), left_out)


def load_or_train_tokenizer(
    recipe: PretrainingRecipe, inputs: Inputs, trained: Path | None
) -> PreTrainedTokenizerBase:
    """Load the tokenizer that the recipe names, or the one that was trained for the run before, or train one.

    Raises:
        ValueError: It cannot be loaded, or the text or the vocabulary's size is impossible.
    """
    if inputs.tokenizer is not None:
        fit_frame(inputs.tokenizer, recipe.objective.template, str(recipe.tokenizer.path))
        return inputs.tokenizer
    if trained is None:
        trained = trained_tokenizer(recipe, inputs.texts["train"], most_positions(inputs.config))
    return load_tokenizer(str(trained))


def trained_tokenizer(
    recipe: PretrainingRecipe, documents: Sequence[Documents], max_length: int | None
) -> Path:
    """Train a tokenizer on documents, unless an earlier run has, and give its folder in the cache.

    Args:
        recipe: Says how it is trained.
        documents: The training text.
        max_length: Tokens that the model reads at most; `None` if there is no limit.

    Raises:
        ValueError: The text or the vocabulary's size is impossible.
    """
    options = {
        "kind": recipe.tokenizer.kind,
        "vocab_size": recipe.tokenizer.vocab_size,
        "lowercase": recipe.tokenizer.lowercase,
        "sentinels": recipe.objective.num_sentinels,
        "special_tokens": special_tokens_of(recipe),
        "template": recipe.objective.template,
        "model_max_length": max_length,
    }
    name = name_of(EDITION, options, [part.fingerprint() for part in documents])

    def make(folder: Path) -> None:
        train_tokenizer(Joined(documents), **options).save_pretrained(folder)

    return made_once(cache_folder(recipe.corpus.cache) / "tokenizers" / name, make)


def special_tokens_of(recipe: PretrainingRecipe) -> tuple[str, ...]:
    """List the special tokens of a new tokenizer without a role: the objective's, and those of the text."""
    named = () if recipe.corpus.control_tokens == "own" else recipe.corpus.control_tokens
    return (*recipe.objective.special_tokens, *named)


class Joined:
    """Several documents' texts, one after another, as often as one likes."""

    def __init__(self, parts: Sequence[Documents]):
        self.parts = parts

    def __iter__(self) -> Iterator[str]:
        """Read all texts."""
        return chain.from_iterable(self.parts)


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
