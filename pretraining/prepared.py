"""What a pretraining run consists of, before it begins: every part is built once, and checked on the way.

recipe -> find_inputs -> configuration, documents              what needs no text is checked first
                |
             prepare  -> tokenizer, model, objective, examples, cut into steps
"""

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path

import numpy as np
from accelerate import Accelerator
from transformers import PreTrainedTokenizerBase
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from ..modeling import NeuralConfig
from ..objectives.base_recipe import Trainable
from ..storage.checkpoint import Checkpoint, Opener, opening_once
from ..storage.length import max_length, most_positions
from ..storage.model_folder import keep_option, save_tokenizer
from ..text.cache import cache_folder, made_once, name_of
from ..text.documents import EMBEDDED, Documents, require_unchanged
from ..text.held_apart import warn_of_shared_documents
from ..text.mixed_documents import single_texts
from ..text.new_terms import add_spelled, add_terms, learn_terms, read_terms, require_same_reading
from ..text.prepared import PreparedDocuments
from ..text.texts_read import warn_of_overlap
from ..text.tokenization import tokenized_corpus
from ..text.tokenizer import fit_frame, load_tokenizer, saved_files, train_tokenizer
from ..training.evaluation import HeldOut
from ..training.examples import Examples, ExampleSource, LeftOut, left_out_of
from ..training.exchange import main_first
from ..training.final_weights import EMA, MEAN
from ..training.objective import Objective
from ..training.recipe import StageRecipe
from ..training.stages import TrainingData, prepare_data, require_consistent
from .continuation import TOKENS, TOKENS_BEFORE, tell_of_replaced, told_of_tokens
from .model import build_config, build_model, former_tokenizer
from .recipe import PretrainingRecipe, listed
from .text import Texts, build_held_out, context_of, named_tokenizer, open_texts, training_source
from .text_shares import require_enough_text

EDITION = 3
"""To be raised whenever the same text gives another tokenizer."""


@dataclass(frozen=True)
class Inputs:
    """What a recipe names, found and checked; no text has been read."""

    config: NeuralConfig
    """Of the model, before the tokenizer has set the size of the vocabulary."""
    texts: Texts
    """The documents of both splits."""
    tokenizer: PreTrainedTokenizerBase | None
    """The existing one, if the recipe names one, or a corpus was prepared by one."""
    open_model: Opener = Checkpoint.open
    """Finds the model that goes on by its name."""


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
    """What is in no example, of each split; of a text that is read by windows, what is not in the first."""


def find_inputs(recipe: PretrainingRecipe) -> Inputs:
    """Check everything that needs no text, which may take long to read; find the text.

    Raises:
        ValueError: Parts of the recipe do not fit each other, or the tokenizer cannot be loaded.
        FileNotFoundError: A file that it names does not exist.
    """
    require_consistent(recipe.training)
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
    require_enough_text(recipe, data.stages)
    examples = source.epoch(0)
    left_out = {"train": left_out_of(examples), "validation": held_out.left_out}
    return Prepared(tokenizer, model, objective, data, held_out, extent_of(examples), left_out)


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


def load_or_train_tokenizer(
    recipe: PretrainingRecipe, inputs: Inputs, trained: Path | None
) -> PreTrainedTokenizerBase:
    """Load the tokenizer that the recipe names, or the one that was made for the run before, or make one.

    Raises:
        ValueError: It cannot be loaded, the text or the vocabulary's size is impossible, or a term is.
    """
    named, is_extended = inputs.tokenizer, recipe.tokenizer.is_extended
    name = str(recipe.tokenizer.path or recipe.corpus.train)
    if trained is not None and (named is None or is_extended):
        name, named = str(trained), load_tokenizer(str(trained))
    else:
        if named is None:
            made = trained_tokenizer(recipe, inputs.texts["train"], most_positions(inputs.config))
            named = load_tokenizer(str(made))
        if is_extended:
            named = load_tokenizer(str(extended_tokenizer(recipe, inputs.texts["train"], named)))
        if inputs.tokenizer is not None:
            fit_frame(named, recipe.objective.template, name)
    fit_length(recipe, inputs.config, named, name)
    return named


def fit_length(
    recipe: PretrainingRecipe, config: NeuralConfig, tokenizer: PreTrainedTokenizerBase, name: str
) -> None:
    """Let a tokenizer cut texts to the model's positions, and print what changes.

    That of a model which goes on may cut to fewer, as sentence models do, if the recipe leaves the positions.
    """
    longest, former = most_positions(config), tokenizer.model_max_length
    model = recipe.model
    is_own = model.path is not None and recipe.tokenizer.path == model.path
    may_be_less = is_own and "max_position_embeddings" not in model.applied_overrides
    if longest is not None and may_be_less:
        longest = max_length(config, former)
    if longest is None or former == longest:
        return
    keep_option(tokenizer, "model_max_length", longest)
    told = f"texts to {former:,} tokens" if former < VERY_LARGE_INTEGER else "no texts"
    print(
        f"{name}: the tokenizer cuts {told}; beside the model, it cuts them to its {longest:,} positions",
        file=sys.stderr,
        flush=True,
    )


TOLD = "terms.txt"
"""Beside an extended tokenizer in the cache: what became of the terms, for the screen."""


def extended_tokenizer(
    recipe: PretrainingRecipe, documents: Sequence[Documents], tokenizer: PreTrainedTokenizerBase
) -> Path:
    """Give a copy of a tokenizer the recipe's terms, unless an earlier run has; return its cached folder.

    What became of the terms is shown on the screen.

    Raises:
        ValueError: A term cannot become a token, or none can be learned.
    """
    listed, number = recipe.tokenizer.add, recipe.tokenizer.add_learned
    terms = [] if listed is None else read_terms(listed)
    texts = [part.fingerprint() for part in documents] if number else []
    saved = {name: contents.decode() for name, contents in saved_files(tokenizer).items()}
    name = name_of(EDITION, saved, terms, number, texts)

    def make(folder: Path) -> None:
        told, copy = [], deepcopy(tokenizer)
        if terms:
            told.append(add_terms(copy, terms).told("tokenizer.add"))
        if number:
            learned = add_spelled(copy, learn_terms(copy, number, Joined(documents)))
            told.append(learned.told("tokenizer.add_learned"))
            require_unchanged(documents, texts)
        save_tokenizer(copy, folder)
        (folder / TOLD).write_text("\n".join(told), encoding="utf-8")

    folder = made_once(cache_folder(recipe.corpus.cache) / "tokenizers" / name, make)
    require_same_reading(tokenizer, load_tokenizer(str(folder)), Joined(documents))
    print((folder / TOLD).read_text(encoding="utf-8"), file=sys.stderr, flush=True)
    return folder


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
    texts = [part.fingerprint() for part in documents]
    name = name_of(EDITION, options, texts)

    def make(folder: Path) -> None:
        save_tokenizer(train_tokenizer(Joined(documents), **options), folder)
        require_unchanged(documents, texts)

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
