"""Tokenizers of whole words, each of a known id."""

from collections.abc import Iterable, Mapping
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

SIGNS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]
ROLES = dict(zip(("pad_token", "cls_token", "sep_token", "mask_token", "unk_token"), SIGNS, strict=True))
"""Special tokens of encoders, by what they are for."""


def word_level(words: Iterable[str] | Mapping[str, int], **roles: Any) -> PreTrainedTokenizerFast:
    """Build a tokenizer of words, which are numbered in their order unless they have ids."""
    ids = dict(words) if isinstance(words, Mapping) else {word: number for number, word in enumerate(words)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(ids, roles["unk_token"])), **roles)
