"""Terms of a domain that a run gives its tokenizer: those of a list, and those that save the most tokens."""

import sys
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from ..data.cache import cache_folder, key_of, made_once
from ..data.documents import Documents, require_unchanged
from ..data.tokenizers.new_terms import add_spelled, add_terms, learn_terms, require_same_reading
from ..data.tokenizers.tokenizer import load_tokenizer, saved_files
from ..modeling.saved.model_folder import save_tokenizer
from .tokenizer import EDITION, Joined

TOLD = "terms.txt"
"""Beside an extended tokenizer in the cache: what became of the terms, for the screen."""


def extended_tokenizer(
    tokenizer: PreTrainedTokenizerBase,
    terms: Sequence[str],
    number: int,
    documents: Sequence[Documents],
    cache: str | None,
) -> Path:
    """Give a copy of a tokenizer terms, and `number` learned ones, unless a run before has; return where."""
    texts = [part.fingerprint() for part in documents] if number else []
    saved = {name: contents.decode() for name, contents in saved_files(tokenizer).items()}
    name = key_of(EDITION, saved, terms, number, texts)

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

    folder = made_once(cache_folder(cache) / "tokenizers" / name, make)
    require_same_reading(tokenizer, load_tokenizer(str(folder)), Joined(documents))
    print((folder / TOLD).read_text(encoding="utf-8"), file=sys.stderr, flush=True)
    return folder
