"""From texts to the ids that a model reads: one text or a pair, framed as the tokenizer frames them.

    [CLS] text [SEP]     [CLS] text [SEP] other text [SEP]     <s> text </s></s> other text </s>

Tokenizers of decoders often frame nothing; the token that ends a text then stands between the two of a pair,
as it did between documents in pretraining.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from transformers import BatchEncoding, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..text.bad_records import RowError
from ..training.packing import Ragged, ragged

NO_WORD = -1
"""Number of the word of a token that begins none."""


class TextEncoder:
    """Turns texts into ids.

    Args:
        tokenizer: A fast one: spans of characters are asked of it, too.
        max_length: Ids of a row at most; longer texts lose their end.
        has_token_types: Whether the model tells first and second text apart by `token_type_ids`.
        is_causal: Whether a token of the model has seen only what stands before it.
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
        is_causal: bool = False,
        decoder_start_id: int | None = None,
    ):
        if not tokenizer.is_fast:
            raise ValueError(
                f"{type(tokenizer).__name__} is not a fast tokenizer, which is needed for character "
                f"offsets: convert it to tokenizer.json"
            )
        self.tokenizer = cast(PreTrainedTokenizerFast, tokenizer)
        self.max_length = max_length
        self.has_token_types = has_token_types
        self.is_causal = is_causal
        self.decoder_start_id = decoder_start_id
        self.frames = tokenizer.num_special_tokens_to_add(pair=True) > 0

    def encode(self, texts: Sequence[str], others: Sequence[str] | None = None) -> dict[str, Ragged]:
        """Encode texts, or pairs of texts: `input_ids`, and `token_type_ids` if the model reads them.

        Where something had to be cut off, a warning counts the rows; of a pair, the longer text is cut first.

        Raises:
            RowError: The tokenizer knows nothing of a text.
            ValueError: There is no room for a text beside what frames it, or nothing to put between two.
        """
        if others is None or self.frames:
            return self._fields(self._tokenize(texts, others))
        return self._fields(self._join(texts, others))

    def encode_words(self, texts: Sequence[Sequence[str]]) -> dict[str, Ragged]:
        """Encode texts that come as words: besides what `encode` gives, `words`.

        That is, at the first token of each word, the word's number, and -1 at all other tokens. Words are
        joined by spaces and found again by their characters, so that every fast tokenizer will do.
        """
        encoded = self._tokenize([" ".join(words) for words in texts], return_offsets_mapping=True)
        spans = zip(texts, encoded["offset_mapping"], strict=True)
        words = [words_at(words, offsets) for words, offsets in spans]
        return self._fields(encoded) | {"words": as_ragged(words)}

    def _tokenize(
        self, texts: Sequence[str], others: Sequence[str] | None = None, **options: Any
    ) -> BatchEncoding:
        """Call the tokenizer on texts or pairs, and once more if some are too long."""
        columns = [list(texts)] if others is None else [list(texts), list(others)]
        self._require_room(self.tokenizer.num_special_tokens_to_add(len(columns) > 1) + len(columns))
        options |= {"return_attention_mask": False, "return_token_type_ids": True, "verbose": False}
        encoded = self.tokenizer(*columns, **options)  # pyright: ignore[reportArgumentType]
        lengths = [len(ids) for ids in encoded["input_ids"]]
        self._tell_of_cuts(lengths)
        if max(lengths) > self.max_length:
            options |= {"truncation": "longest_first", "max_length": self.max_length}
            encoded = self.tokenizer(*columns, **options)  # pyright: ignore[reportArgumentType]
            self.tokenizer.backend_tokenizer.no_truncation()  # or it would be saved with the tokenizer
        return encoded

    def _join(self, texts: Sequence[str], others: Sequence[str]) -> dict[str, Any]:
        """Put the token that ends a text between the two of each pair, and leave out what is too long."""
        between = self.tokenizer.eos_token_id
        if between is None:
            raise ValueError(
                "the tokenizer has no eos token to separate the two texts of a row: set its eos_token, or "
                "join the texts in one column"
            )
        self._require_room(3)
        options: dict[str, Any] = {"add_special_tokens": False, "verbose": False}
        encoded = (self.tokenizer(list(column), **options)["input_ids"] for column in (texts, others))
        pairs = [*zip(*encoded, strict=True)]
        self._tell_of_cuts([len(first) + 1 + len(second) for first, second in pairs])
        kept = [cut_longest_first(first, second, self.max_length - 1) for first, second in pairs]
        return {
            "input_ids": [[*first, between, *second] for first, second in kept],
            "token_type_ids": [[0] * (len(first) + 1) + [1] * len(second) for first, second in kept],
        }

    def _fields(self, encoded: Mapping[str, Any]) -> dict[str, Ragged]:
        names = ["input_ids", *(["token_type_ids"] if self.has_token_types else [])]
        for row, ids in enumerate(encoded["input_ids"]):
            if not ids:
                raise RowError(row, "has no text that the tokenizer knows: take it out")
        return {name: as_ragged(encoded[name]) for name in names}

    def _require_room(self, least: int) -> None:
        if self.max_length < least:
            raise ValueError(
                f"{self.max_length} tokens are too few for a row, which needs at least {least}: raise "
                f"data.max_length"
            )

    def _tell_of_cuts(self, lengths: list[int]) -> None:
        if num_cut := sum(length > self.max_length for length in lengths):
            warnings.warn(
                f"{num_cut:,} of {len(lengths):,} texts are longer than {self.max_length} tokens, the "
                f"longest has {max(lengths):,}: they are truncated",
                stacklevel=2,
            )


def cut_longest_first(first: list[int], second: list[int], room: int) -> tuple[list[int], list[int]]:
    """Cut two lists of ids so that they fit into a room together, and the shorter one loses least.

    >>> cut_longest_first([1] * 9, [2] * 3, 8), cut_longest_first([1] * 9, [2] * 9, 5)
    (([1, 1, 1, 1, 1], [2, 2, 2]), ([1, 1], [2, 2, 2]))
    """
    shorter = min(len(first), len(second), room // 2)
    if len(first) > len(second):
        return first[: room - shorter], second[:shorter]
    return first[:shorter], second[: room - shorter]


def words_at(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> np.ndarray:
    """Number each word at its first token (T,), by the spans of characters of words and tokens; else -1.

    A word begins behind its leading spaces; one of spaces alone has no token.

    >>> words_at(["un", "true"], [(0, 0), (0, 2), (3, 5), (5, 7), (0, 0)]).tolist()
    [-1, 0, 1, -1, -1]
    """
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    begins = ends - [len(word.lstrip(" ")) for word in words]
    numbers, unseen = np.full(len(offsets), NO_WORD, dtype=np.int64), 0
    for token, (first, last) in enumerate(offsets):
        while unseen < len(words) and (ends[unseen] <= first or not words[unseen].strip(" ")):
            unseen += 1  # the tokenizer left nothing of it
        if first < last and unseen < len(words) and last > begins[unseen]:
            numbers[token], unseen = unseen, unseen + 1
    return numbers


def as_ragged(rows: Sequence[Sequence[int] | np.ndarray]) -> Ragged:
    """Lay lists of ids end to end."""
    return ragged([np.asarray(row, dtype=np.int64) for row in rows])
