"""From texts to the ids that a model reads: one text or a pair, framed as the tokenizer frames them.

    [CLS] text [SEP]     [CLS] text [SEP] other text [SEP]     <s> text </s></s> other text </s>

Tokenizers of decoders often frame nothing; a pair is then joined by the end-of-text token, as documents were
in pretraining.
"""

import warnings
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..training.packing import Ragged, ragged

NO_WORD = -1
"""Number of the word of a token that begins none."""


class TextEncoder:
    """Turns texts into ids.

    Args:
        tokenizer: A fast one: spans of characters are asked of it, too.
        max_length: Ids of a row at most; longer texts lose their end.
        has_token_types: Whether the model tells first and second text apart by `token_type_ids`.
        decoder_start_id: What the decoder reads first, if the model is one of source and target.

    Raises:
        ValueError: The tokenizer is no fast one.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        *,
        has_token_types: bool,
        decoder_start_id: int | None = None,
    ):
        if not tokenizer.is_fast:
            raise ValueError(
                f"{type(tokenizer).__name__} is no fast tokenizer, and only these tell which text a token "
                "stands for: convert it to tokenizer.json"
            )
        self.tokenizer = cast(PreTrainedTokenizerFast, tokenizer)
        self.max_length = max_length
        self.has_token_types = has_token_types
        self.decoder_start_id = decoder_start_id
        self.frames = tokenizer.num_special_tokens_to_add(pair=True) > 0

    def encode(self, texts: Sequence[str], others: Sequence[str] | None = None) -> dict[str, Ragged]:
        """Encode texts, or pairs of texts: `input_ids`, and `token_type_ids` if the model reads them.

        Where something had to be cut off, a warning counts the rows.
        """
        if others is not None and not self.frames:
            between = self.tokenizer.eos_token or ""
            texts, others = [f"{a}{between}{b}" for a, b in zip(texts, others, strict=True)], None
        options: dict[str, Any] = {"return_attention_mask": False, "return_token_type_ids": True}
        encoded = self.tokenizer(list(texts), list(others) if others is not None else None, **options)
        self._tell_of_cuts([len(ids) for ids in encoded["input_ids"]])
        if max(map(len, encoded["input_ids"])) > self.max_length:
            encoded = self.tokenizer(
                list(texts),
                list(others) if others is not None else None,
                truncation="longest_first",
                max_length=self.max_length,
                **options,
            )
        fields = {"input_ids": as_ragged(self.require_tokens(encoded["input_ids"]))}
        if self.has_token_types:
            fields["token_type_ids"] = as_ragged(encoded["token_type_ids"])
        return fields

    def encode_words(self, texts: Sequence[Sequence[str]]) -> dict[str, Ragged]:
        """Encode texts that come as words: besides what `encode` gives, `words`.

        That is, at the first token of each word, the word's number, and -1 at all other tokens. Words are
        joined by spaces and found again by their characters, so that every fast tokenizer will do.
        """
        joined = [" ".join(words) for words in texts]
        options: dict[str, Any] = {
            "return_attention_mask": False,
            "return_token_type_ids": True,
            "return_offsets_mapping": True,
        }
        encoded = self.tokenizer(joined, **options)
        self._tell_of_cuts([len(ids) for ids in encoded["input_ids"]])
        encoded = self.tokenizer(joined, truncation=True, max_length=self.max_length, **options)
        fields = {"input_ids": as_ragged(self.require_tokens(encoded["input_ids"]))}
        if self.has_token_types:
            fields["token_type_ids"] = as_ragged(encoded["token_type_ids"])
        spans = zip(texts, encoded["offset_mapping"], strict=True)
        fields["words"] = as_ragged([words_at(words, offsets) for words, offsets in spans])
        return fields

    def require_tokens(self, ids: list[list[int]]) -> list[list[int]]:
        """Raise a `ValueError` if the tokenizer leaves nothing of a text."""
        for number, row in enumerate(ids):
            if not row:
                raise ValueError(f"row {number + 1} has no text that the tokenizer knows: take it out")
        return ids

    def _tell_of_cuts(self, lengths: list[int]) -> None:
        if num_cut := sum(length > self.max_length for length in lengths):
            warnings.warn(
                f"{num_cut:,} of {len(lengths):,} texts are longer than {self.max_length} tokens, the "
                f"longest has {max(lengths):,}: their ends are not read",
                stacklevel=2,
            )


def words_at(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> np.ndarray:
    """Number each word at its first token (T,), by the spans of characters of words and tokens; else -1.

    >>> words_at(["un", "true"], [(0, 0), (0, 2), (3, 5), (5, 7), (0, 0)]).tolist()
    [-1, 0, 1, -1, -1]
    """
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    begins = ends - [len(word) for word in words]
    numbers, unseen = np.full(len(offsets), NO_WORD, dtype=np.int64), 0
    for token, (first, last) in enumerate(offsets):
        while unseen < len(words) and ends[unseen] <= first:
            unseen += 1  # the tokenizer left nothing of it
        if first < last and unseen < len(words) and last > begins[unseen]:
            numbers[token], unseen = unseen, unseen + 1
    return numbers


def as_ragged(rows: Sequence[Sequence[int]]) -> Ragged:
    """Lay lists of ids end to end."""
    return ragged([np.asarray(row, dtype=np.int64) for row in rows])
