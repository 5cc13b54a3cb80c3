"""A model's folder, here or fetched from the Hub: what lies in it, read without running foreign code.

Weights are looked at before they are loaded (`weights.py`), and only as safetensors: what lies in a
pickle is executed.
"""

import json
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from huggingface_hub import snapshot_download
from tokenizers import Tokenizer, processors
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    __version__,
)
from transformers.utils.hub import cached_file

from ...configs.messages import first_line, panics_told, quietly
from ...configs.model_paths import CONFIG, require_folder, unknown_model
from .foreign_folder import require_own_files
from .saving import KeysOfTokenizer, keep_known
from .weights import require_counts

GENERATION_CONFIG = "generation_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
CERTIFICATE = "certificate.json"
CONVERSION = "conversion.json"
"""File in which `tercet convert` says what it has kept, added and changed."""

WANTED = [
    "*.json", "*.txt", "*.model", "*.spm", "*.py", "*.jinja", "model.safetensors", "model-*.safetensors",
    "[0-9]_*/model.safetensors",
]  # fmt: skip
"""What is downloaded of a model on the Hub."""

WANTED_OF_TOKENIZERS = [pattern for pattern in WANTED if not pattern.endswith(".safetensors")]
"""The same without weights."""

IGNORED = ["[!0-9a]*/*", "a[!d]*/*"]
"""What is not: files of folders, but for `1_Pooling` and the like, and `additional_chat_templates`."""

MOST_SPARE_ROWS = 2**17
"""Rows of a table of token vectors that do no harm, whatever they are of."""

TOKENIZERS = ("tokenizer*.json", "vocab.*", "*.model", "*.spm")
"""Files of which a folder with a tokenizer has at least one."""

ORDINARY_TEXT = "The ferry didn't leave in 2023; if (x1 != 1250) return [0.5], said Zoe."
"""A sentence with what tokenizers cut in different ways: spaces, apostrophes, numbers, signs, capitals."""


MOST_USER_PIECES = 8
"""Pieces of one's own in a SentencePiece model with which its tokenizer is tried."""


def find_folder(name: str, revision: str | None = None) -> Path:
    """Return a model's folder, or that into which the files of a repository on the Hub were downloaded."""
    folder = Path(name).expanduser()
    require_folder(name)
    if not folder.exists():
        try:
            folder = Path(
                snapshot_download(name, revision=revision, allow_patterns=WANTED, ignore_patterns=IGNORED)
            )
        except Exception as error:  # a name, a network, a Hub: each fails in its own way
            raise unknown_model(name, first_line(error)) from error
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{name} on the Hub is not a model (it has no {CONFIG}): check the name")
    require_own_files(folder)
    return folder


def load_config(folder: Path, *, trust_remote_code: bool | None = None) -> PreTrainedConfig:
    """Load the configuration of a model; code that it brings along is run only if `trust_remote_code`."""
    require_generation_config(folder)
    require_counts(folder, read_fields(folder))
    try:
        with quietly():
            return AutoConfig.from_pretrained(folder, trust_remote_code=bool(trust_remote_code))
    except Exception as error:  # each in its own way
        if "trust_remote_code" in str(error):
            raise untrusted(f"{folder} brings", trust_remote_code) from error
        raise ValueError(
            f"{folder / CONFIG} cannot be loaded ({first_line(error)}): repair it, or copy it again"
        ) from error


def read_fields(folder: Path) -> dict[str, Any]:
    """Read a configuration as it is written; of none, and of one that is no JSON object, no fields."""
    try:
        fields = json.loads((folder / CONFIG).read_bytes())
    except (ValueError, FileNotFoundError):
        return {}
    return fields if isinstance(fields, dict) else {}


def require_generation_config(folder: Path) -> None:
    """Refuse damaged generation defaults, which transformers would replace in silence."""
    file = folder / GENERATION_CONFIG
    try:
        settings = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError as error:
        raise ValueError(
            f"{file} cannot be read ({first_line(error)}): repair it, or remove it to use the "
            f"configuration's values"
        ) from error
    if not isinstance(settings, dict):
        raise ValueError(f"{file} is not a JSON object: copy it again, or remove it")


def load_tokenizer(folder: Path, *, trust_remote_code: bool | None = None) -> PreTrainedTokenizerBase | None:
    """Load the tokenizer beside a model, if there is one; transformers itself would make up an empty one."""
    if not any(file for pattern in TOKENIZERS for file in folder.glob(pattern)):
        return None
    try:
        with quietly():
            tokenizer = read_tokenizer(folder, trust_remote_code=bool(trust_remote_code))
    except Exception as error:  # every kind fails in its own way
        if "trust_remote_code" in str(error):
            raise untrusted(f"the tokenizer in {folder} brings", trust_remote_code) from error
        raise unreadable(f"the tokenizer in {folder}", error, "copy its files again") from error
    settle_reading(tokenizer, str(folder))
    return tokenizer


def read_tokenizer(source: str | Path, **options: Any) -> PreTrainedTokenizerBase:
    """Load a tokenizer by transformers, and let it encode a text, for some files fail only then.

    Raises:
        Exception: As transformers fails, or as a `ValueError` if the library of fast tokenizers panics.
    """
    with panics_told("its tokenizer.json"):
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        if tokenizer.is_fast:
            with suppress(Exception):  # whoever encodes a text is told of it
                tokenizer(ORDINARY_TEXT, verbose=False)
                tokenizer(ORDINARY_TEXT, ORDINARY_TEXT, verbose=False)
    return tokenizer


def settle_reading(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Let a tokenizer read a text always in one way, and compare it with the file that it was made of.

    Warns:
        UserWarning: It gives other tokens of a sentence than its `tokenizer.json` (so OLMo 2's as
            `GPT2Tokenizer`), or than the SentencePiece model that transformers has converted.
    """
    if not tokenizer.is_fast:
        return
    model = cast(Any, tokenizer).backend_tokenizer.model
    if getattr(model, "dropout", None):  # of BPE (Provilkov et al., 2020)
        print(
            f"{name}: the tokenizer leaves merges out at random (BPE dropout {model.dropout:g}); this is "
            "switched off, so that a text always has the same tokens",
            file=sys.stderr,
            flush=True,
        )
        model.dropout = None
    _place_all_letters(cast(Any, tokenizer).backend_tokenizer)
    source = getattr(tokenizer, "vocab_file", None)
    if source is None and type(tokenizer) is PreTrainedTokenizerFast:  # which is the file
        return
    file = cached_file(
        name,
        "tokenizer.json",
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
        _raise_exceptions_for_gated_repo=False,
    )
    if file is not None:
        _tell_of_other_tokens(tokenizer, name, file)
    elif str(source).endswith((".model", ".spm")):
        _tell_of_other_pieces(tokenizer, name, str(source))


def _place_all_letters(backend: Tokenizer) -> None:
    """Let tokens have their spaces, where leaving these out of a token's place leaves out a letter.

    So it is if the words are cut at spaces, and then get one each (RobBERT's): "a" in "is a" has no place.
    """
    whole = backend.post_processor
    parts = list(cast(Any, whole)) if isinstance(whole, processors.Sequence) else [whole]
    trimming = [part for part in parts if getattr(part, "trim_offsets", False)]
    if not trimming:
        return
    with suppress(Exception):  # whoever encodes a text is told of it
        places = backend.encode(ORDINARY_TEXT, add_special_tokens=False).offsets
        placed = {letter for first, last in places for letter in range(first, last)}
        letters = {place for place, letter in enumerate(ORDINARY_TEXT) if letter != " "}
        if not letters <= placed or places != sorted(places):
            for part in trimming:
                part.trim_offsets = False


def _tell_of_other_tokens(tokenizer: PreTrainedTokenizerBase, name: str, file: str) -> None:
    """Compare with `tokenizer.json`: some classes read the vocabulary there alone."""
    written = Tokenizer.from_file(file)
    written.no_truncation()
    written.no_padding()
    if hasattr(written.model, "dropout"):
        cast(Any, written.model).dropout = None
    ids = written.encode(ORDINARY_TEXT, add_special_tokens=False).ids
    if ids != tokenizer(ORDINARY_TEXT, add_special_tokens=False, verbose=False)["input_ids"]:
        warnings.warn(
            f"{name}: transformers' {type(tokenizer).__name__} does not cut text as tokenizer.json there "
            "does, which tokenizers, llama.cpp and others read: if the model has learned from the tokens of "
            'that file, set "tokenizer_class": "PreTrainedTokenizerFast" in tokenizer_config.json',
            stacklevel=3,
        )


def _tell_of_other_pieces(tokenizer: PreTrainedTokenizerBase, name: str, file: str) -> None:
    """Compare with a SentencePiece model, of which not every class of every release makes the same tokenizer.

    Before 5.24 the general class leaves out the space before a text; several lose the user's own pieces.
    """
    try:
        pieces = import_module("sentencepiece").SentencePieceProcessor(model_file=file)
    except (ImportError, RuntimeError):  # it is tiktoken's file
        return
    plain = (idx for idx in range(len(pieces)) if pieces.get_score(idx) == 0)
    user = [idx for idx in plain if not pieces.is_control(idx) and not pieces.is_unknown(idx)]
    text = " a ".join([ORDINARY_TEXT, *map(pieces.id_to_piece, user[:MOST_USER_PIECES])])
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    unknown = {pieces.id_to_piece(pieces.unk_id()), str(tokenizer.unk_token)}
    meant, found = (
        [None if token in unknown else token for token in tokens]
        for tokens in (map(pieces.id_to_piece, pieces.encode(text)), tokenizer.convert_ids_to_tokens(ids))
    )
    if meant != found:
        warnings.warn(
            f"{name} has no tokenizer.json, and what transformers {__version__} makes of {Path(file).name} "
            "there does not cut text as SentencePiece does: add a tokenizer.json that does (transformers "
            "5.24 makes more of these files right)",
            stacklevel=3,
        )


def unreadable(who: str, error: Exception, remedy: str) -> ValueError:
    """Return the error of a tokenizer that cannot be loaded, with the reason."""
    if any(library in str(error).lower() for library in ("sentencepiece", "tiktoken")):
        reason = "it has no tokenizer.json, and what it has is read by another library"
        return ValueError(f"{who} cannot be loaded ({reason}): pip install sentencepiece protobuf")
    return ValueError(f"{who} cannot be loaded ({first_line(error)}): {remedy}")


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a tokenizer into a folder; what its `tokenizer.json` says of truncation and padding is taken out.

    Both are what the latest call has asked for. Programs that read this file alone would cut any text there,
    although they know the model's limit or ask for the whole. How long texts may be is `model_max_length`, in
    `tokenizer_config.json`, of which keys that no tokenizer has are taken out, too.
    """
    if tokenizer.is_fast:
        backend = cast(PreTrainedTokenizerFast, tokenizer).backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
    tokenizer.save_pretrained(folder)
    file = folder / TOKENIZER_CONFIG
    facts = with_general_class(keep_known(file, KeysOfTokenizer(tokenizer), kind=type(tokenizer).__name__))
    file.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def with_general_class(config: dict[str, Any]) -> dict[str, Any]:
    """Name the class of a tokenizer, and special tokens of its own, as transformers 4 does; 5 reads both."""
    if config.get("tokenizer_class") == "TokenizersBackend":
        config = config | {"tokenizer_class": "PreTrainedTokenizerFast"}
    if isinstance(config.get("extra_special_tokens"), list):
        config = config | {"additional_special_tokens": config["extra_special_tokens"]}
        del config["extra_special_tokens"]
    return config


def keep_option(tokenizer: PreTrainedTokenizerBase, name: str, value: Any) -> None:
    """Set an attribute of a tokenizer that is saved with it."""
    setattr(tokenizer, name, value)
    tokenizer.init_kwargs[name] = value


def give_segments(tokenizer: PreTrainedTokenizerBase, has_segments: bool) -> None:
    """Return token types from calls of the tokenizer if, and only if, the model has vectors of segments."""
    names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]
    keep_option(tokenizer, "model_input_names", [*names, "token_type_ids"] if has_segments else names)


def untrusted(who: str, trust_remote_code: bool | None) -> ValueError:
    """Return the error of code that would have to be run; it is not allowed wherever models are read."""
    if trust_remote_code is None:
        return ValueError(
            f"{who} its own code, which is not run here: name a model of transformers' own architectures, "
            "or of Tercet's; only tercet fewshot and tercet doctor take --trust-remote-code"
        )
    return ValueError(f"{who} its own code: review it, then pass --trust-remote-code")


def pads(tokenizer: PreTrainedTokenizerBase, name: str) -> bool:
    """Return whether a tokenizer can pad; one without a padding token gets the end of text, which is told.

    What is padded here has a mask or lengths, and no target is told by its id: ends of texts stay targets.
    """
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        tokenizer.pad_token = tokenizer.eos_token
        print(
            f"{name}: the tokenizer has no pad token, and pads with its eos token {tokenizer.eos_token}",
            file=sys.stderr,
            flush=True,
        )
    return tokenizer.pad_token is not None


def require_fit(tokenizer: PreTrainedTokenizerBase | None, config: PreTrainedConfig) -> None:
    """Refuse a tokenizer whose ids the model has no vectors for."""
    if tokenizer is not None and num_ids(tokenizer) > config.vocab_size:
        raise ValueError(
            f"the tokenizer has ids below {num_ids(tokenizer):,}, but the model has embeddings for "
            f"{config.vocab_size:,} only: they do not belong together, unless tokens were added; then "
            "train the model on with them first (tercet pretrain, model.path)"
        )


def require_dense_ids(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Refuse a tokenizer that leaves most rows of a new model's table, one for each id, without a token."""
    vocabulary = tokenizer.get_vocab()
    if num_ids(tokenizer) > max(2 * len(vocabulary), MOST_SPARE_ROWS):
        token = max(vocabulary, key=vocabulary.__getitem__)
        raise ValueError(
            f"the tokenizer {name} has {len(vocabulary):,} tokens, but {token!r} has the id "
            f"{vocabulary[token]:,}: number them one after another, because a model has a row for every id "
            "below"
        )


def num_ids(tokenizer: PreTrainedTokenizerBase) -> int:
    """Count the rows that a tokenizer's ids need: more than it has tokens where it leaves ids out."""
    return max(tokenizer.get_vocab().values()) + 1
