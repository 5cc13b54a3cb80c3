"""Where a model comes from: a folder, or the Hub. Read without running foreign code, and without pickle."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from .architecture import Architecture, Counterpart
from .architectures import architecture_of
from .weights import Dropped, look_up, shortened

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "spiece.model", "source.spm", "vocab.txt")
"""One of these lies in a folder that has a tokenizer."""


def load_stock(source: str, revision: str | None = None) -> PreTrainedModel:
    """Load a stock model from a folder or the Hub, with the head that takes up most of its tensors.

    Args:
        source: A folder, or the name of a repository on the Hub.
        revision: Branch, tag or commit there.

    Raises:
        FileNotFoundError: There is no model.
        ValueError: It is none of the architectures that ours can be, or its weights are damaged, incomplete,
            pickled, or more than its architecture has.
    """
    config = load_config(source, revision)
    architecture = architecture_of(config)
    require_safe(source)
    with quietly():
        attempts = [
            attempt(source, revision, architecture, counterpart)
            for counterpart in candidates(architecture, config)
        ]
    complete = [model for model, _, missing in attempts if not missing]
    if not complete:
        _, _, missing = min(attempts, key=lambda each: len(each[2]))
        raise ValueError(f"{source} lacks {len(missing)} tensors of its architecture: {shortened(missing)}")
    model, surplus, _ = min((each for each in attempts if not each[2]), key=lambda each: len(each[1]))
    if surplus:
        raise ValueError(
            f"{source} has {len(surplus)} tensors for which {type(model).__name__} has no place: "
            f"{shortened(surplus)}"
        )
    return model.eval()


def load_config(source: str, revision: str | None = None) -> PreTrainedConfig:
    """Load the configuration of a model.

    Raises:
        FileNotFoundError: There is none.
        ValueError: transformers does not know its type, or it is one of ours.
    """
    folder = Path(source)
    if folder.exists() and not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{source} is no model: it has no config.json")
    try:
        config = AutoConfig.from_pretrained(source, revision=revision)
    except OSError as error:
        raise FileNotFoundError(
            f"{source} is neither a folder nor a model that the Hub lets us read: {first_line(error)}"
        ) from error
    if config.model_type.startswith("tercet"):
        raise ValueError(f"{source} is a {config.model_type} already: load it with from_pretrained")
    return config


def require_safe(source: str) -> None:
    """Refuse a folder whose weights are pickled: reading them may run anything that is written there.

    Raises:
        ValueError: With the safe way.
    """
    folder = Path(source)
    if folder.is_dir() and not any(folder.glob("*.safetensors")):
        pickled = sorted(path.name for path in (*folder.glob("*.bin"), *folder.glob("*.pt")))
        if pickled:
            raise ValueError(
                f"{source} holds pickled weights only ({shortened(pickled, 3)}), and reading these can run "
                "foreign code: if you trust where they come from, load the model with transformers, "
                "call save_pretrained, which writes safetensors, and import that folder"
            )
        raise FileNotFoundError(f"{source} has a config.json, but no weights (*.safetensors)")


def candidates(architecture: Architecture, config: PreTrainedConfig) -> Iterator[Counterpart]:
    """Give the model that the configuration names, then the others of its architecture."""
    named = (config.architectures or [None])[0]
    yield from sorted(architecture.counterparts, key=lambda each: each.stock != named)


def attempt(
    source: str, revision: str | None, architecture: Architecture, counterpart: Counterpart
) -> tuple[PreTrainedModel, list[str], list[str]]:
    """Load a model with one head: the model, the tensors that it has no place for, and those it lacks."""
    try:
        model, found = getattr(transformers, counterpart.stock).from_pretrained(
            source, revision=revision, use_safetensors=True, output_loading_info=True
        )
    except SafetensorError as error:
        raise ValueError(f"the weights in {source} are damaged: {error}; fetch them again") from error
    except OSError as error:
        raise FileNotFoundError(f"{source} has no safetensors: {first_line(error)}") from error
    table, present = architecture.table(counterpart), set[str]()
    surplus = [
        name
        for name in sorted(found["unexpected_keys"])
        if not isinstance(look_up(name, table, model.config, present), Dropped)
    ]
    return model, surplus, sorted(found["missing_keys"])


def load_tokenizer(source: str, revision: str | None = None) -> PreTrainedTokenizerBase | None:
    """Load the tokenizer beside a model, if there is one.

    Raises:
        ValueError: It cannot be read.
    """
    folder = Path(source)
    if folder.is_dir() and not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return None
    try:
        with quietly():
            return AutoTokenizer.from_pretrained(source, revision=revision)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ValueError(f"the tokenizer of {source} cannot be read: {first_line(error)}") from error


def require_fit(tokenizer: PreTrainedTokenizerBase | None, config: Any) -> None:
    """Refuse a tokenizer whose ids the model has no vectors for.

    Raises:
        ValueError: With both sizes.
    """
    if tokenizer is not None and len(tokenizer) > config.vocab_size:
        raise ValueError(
            f"the tokenizer has {len(tokenizer):,} tokens, but the model vectors for {config.vocab_size:,} "
            "only: they do not belong together"
        )


@contextmanager
def quietly() -> Iterator[None]:
    """Keep transformers from reporting what is looked at here anyway."""
    verbosity, shows_progress = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shows_progress:
            logging.enable_progress_bar()


def first_line(error: Exception) -> str:
    """Give the first line of a message."""
    return str(error).strip().partition("\n")[0]
