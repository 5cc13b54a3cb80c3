"""The tokenizer of a pretraining run: loaded, trained on its text or given terms, and kept in its folder.

named, or trained on the text -> terms added -> cut to the model's positions -> kept in the run's folder
"""

import sys
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import chain
from pathlib import Path

from transformers import PreTrainedTokenizerBase
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from ..data.cache import cache_folder, made_once, name_of
from ..data.documents import Documents, require_unchanged
from ..data.texts_read import contents_of
from ..data.tokenizers.new_terms import add_spelled, add_terms, learn_terms, read_terms, require_same_reading
from ..data.tokenizers.tokenizer import fit_frame, load_tokenizer, saved_files, train_tokenizer
from ..modeling import NeuralConfig
from ..modeling.saved.length import max_length, most_positions
from ..modeling.saved.model_folder import keep_option, save_tokenizer
from ..training.checkpoints.checkpoint import CHECKPOINTS, latest
from ..training.run_folder import Run
from .output import TOKENIZER, kept_tokenizer
from .recipe import PretrainingRecipe, TokenizerRecipe
from .text import Inputs

EDITION = 3
"""To be raised whenever the same text gives another tokenizer."""


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


MADE_OF = "made_of.txt"
"""Beside a run's tokenizer: what it was made of, as a hash."""


def keep_tokenizer(
    run_folder: Path, options: TokenizerRecipe, inputs: Inputs, tokenizer: PreTrainedTokenizerBase
) -> Path:
    """Save a tokenizer that was made for a run in its folder, unless it is there; return where."""
    folder = run_folder / TOKENIZER

    def make(target: Path) -> None:
        save_tokenizer(tokenizer, target)
        (target / MADE_OF).write_text(made_of(options, inputs), encoding="utf-8")

    if (options.path is None or options.is_extended) and not folder.exists():
        made_once(folder, make, "another folder with output=...")
    return folder


def found_tokenizer(run: Run, options: TokenizerRecipe, inputs: Inputs) -> Path | None:
    """Find the tokenizer that an earlier command made for a run; one that has begun keeps it in any case.

    Raises:
        ValueError: It was made of other text or terms, in files of the same names.
    """
    folder = kept_tokenizer(run)
    if folder is None or not (folder / MADE_OF).exists() or latest(run.folder / CHECKPOINTS) is not None:
        return folder
    if (folder / MADE_OF).read_text(encoding="utf-8") != made_of(options, inputs):
        raise ValueError(
            f"{folder} was made of other text, or other terms, than the files of corpus.train and "
            "tokenizer.add hold now: make it anew with --overwrite, or choose another folder with output=..."
        )
    return folder


def made_of(options: TokenizerRecipe, inputs: Inputs) -> str:
    """Hash the contents that a run's tokenizer is made of: its text, if it learns from that, and terms."""
    documents = inputs.texts["train"] if inputs.tokenizer is None or options.add_learned else ()
    texts = [contents_of(entry) for part in documents for entry in part.identify()]
    return name_of(texts, [] if options.add is None else read_terms(options.add))


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
    named = () if recipe.corpus.control_tokens == "own" else recipe.corpus.control_tokens
    options = {
        "kind": recipe.tokenizer.kind,
        "vocab_size": recipe.tokenizer.vocab_size,
        "lowercase": recipe.tokenizer.lowercase,
        "sentinels": recipe.objective.num_sentinels,
        "special_tokens": (*recipe.objective.special_tokens, *named),
        "template": recipe.objective.template,
        "model_max_length": max_length,
    }
    texts = [part.fingerprint() for part in documents]
    name = name_of(EDITION, options, texts)

    def make(folder: Path) -> None:
        save_tokenizer(train_tokenizer(Joined(documents), **options), folder)
        require_unchanged(documents, texts)

    return made_once(cache_folder(recipe.corpus.cache) / "tokenizers" / name, make)


class Joined:
    """Several documents' texts, one after another, as often as one likes."""

    def __init__(self, parts: Sequence[Documents]):
        self.parts = parts

    def __iter__(self) -> Iterator[str]:
        """Read all texts."""
        return chain.from_iterable(self.parts)
