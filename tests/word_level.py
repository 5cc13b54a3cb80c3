"""Tokenizers of whole words, each of a known id."""

from collections.abc import Iterable, Mapping
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import PreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

SIGNS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]
ROLES = dict(zip(("pad_token", "cls_token", "sep_token", "mask_token", "unk_token"), SIGNS, strict=True))
"""Special tokens of encoders, by what they are for."""


def word_level(
    words: Iterable[str] | Mapping[str, int],
    *,
    split: PreTokenizer | None = None,
    template: str | None = None,
    pair_template: str | None = None,
    **options: Any,
) -> PreTrainedTokenizerFast:
    """Build a tokenizer of words.

    Args:
        words: They are numbered in their order, unless they have ids.
        split: What splits a text into words; without it, a whole text is one.
        template: What frames a text, such as `[CLS] $A [SEP]`.
        pair_template: What frames two texts.
        options: Of the tokenizer, its special tokens among them; `unk_token` is needed.
    """
    ids = dict(words) if isinstance(words, Mapping) else {word: number for number, word in enumerate(words)}
    backend = Tokenizer(WordLevel(ids, options["unk_token"]))
    if split is not None:
        backend.pre_tokenizer = split
    if template is not None:
        parts = {part.partition(":")[0] for part in f"{template} {pair_template or ''}".split()}
        signs = [(sign, ids[sign]) for sign in sorted(parts) if not sign.startswith("$")]
        backend.post_processor = TemplateProcessing(template, pair_template, signs)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **options)
