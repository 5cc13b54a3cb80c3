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


class TextEncoder:
    """Turns texts into ids.

    Args:
        tokenizer: A fast one: spans of characters are asked of it, too.
        max_length: Ids of a row at most; longer texts lose their end.
        has_token_types: Whether the model tells first and second text apart by `token_type_ids`.

    Raises:
        ValueError: The tokenizer is no fast one.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_length: int, *, has_token_types: bool):
        if not tokenizer.is_fast:
            raise ValueError(
                f"{type(tokenizer).__name__} is no fast tokenizer, and only these tell which text a token "
                "stands for: convert it to tokenizer.json"
            )
        self.tokenizer = cast(PreTrainedTokenizerFast, tokenizer)
        self.max_length = max_length
        self.has_token_types = has_token_types
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


def as_ragged(rows: Sequence[Sequence[int]]) -> Ragged:
    """Lay lists of ids end to end."""
    return ragged([np.asarray(row, dtype=np.int64) for row in rows])
