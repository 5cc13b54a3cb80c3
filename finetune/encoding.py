"""From texts to the ids that a model reads, and to examples: ids of a text or a pair, with labels as numbers.

    [CLS] text [SEP]     [CLS] text [SEP] other text [SEP]     <s> text </s></s> other text </s>

Nothing is put there but by the tokenizer, which is saved with the model: what a model has learned from and is
scored on is what others give it. What a tokenizer lacks for a task it gets beforehand (`frames.py`).

Shapes: E examples, S picked examples, N tokens of theirs.
"""

import warnings
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, cast

import numpy as np
from tokenizers import Tokenizer
from transformers import BatchEncoding, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..data.files.bad_rows import RowError
from ..data.files.problems import SHOWN
from ..data.steps.examples import FixedExamples, PackedExamples
from ..data.steps.objective import Example
from ..data.steps.packing import Ragged, ragged, stretches
from ..data.tokenizers.special_tokens import DroppedText
from ..modeling.saved.model_folder import give_segments

BEGINNING = 40
"""Characters of a text that tell which it is."""

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
        backend_of(tokenizer)
        self.tokenizer = cast(PreTrainedTokenizerFast, tokenizer)
        self.max_length = max_length
        self.has_token_types = has_token_types
        self.is_causal = is_causal
        self.decoder_start_id = decoder_start_id
        self.tell_of_dropped = DroppedText(tokenizer)
        self.frames = tokenizer.num_special_tokens_to_add(pair=False) > 0

    def encode(self, texts: Sequence[str], others: Sequence[str] | None = None) -> dict[str, Ragged]:
        """Encode texts, or pairs of texts: `input_ids`, and `token_type_ids` if the model reads them.

        Where something had to be cut off, a warning counts the rows; of a pair, the longer text is cut first.
        """
        return self._fields(self._tokenize([texts] if others is None else [texts, others]))

    def encode_targets(self, texts: Sequence[str], max_length: int) -> Ragged:
        """Encode texts that are to be written, as the tokenizer has those of the target's language."""
        encoded = self._tokenize([texts], max_length, ("text_target",))
        return self._fields(encoded)["input_ids"]

    def settled(self) -> PreTrainedTokenizerFast:
        """Let the tokenizer cut as this does, and give what the model reads, by itself: so it is saved."""
        self.tokenizer.model_max_length = self.max_length
        give_segments(self.tokenizer, self.has_token_types)
        return self.tokenizer

    def encode_words(self, texts: Sequence[Sequence[str]]) -> dict[str, Ragged]:
        """Encode texts that come as words: besides what `encode` gives, `words`.

        That is, at the first token of each word, the word's number, and -1 at all other tokens. Words are
        joined by spaces and found again by their characters, so that every fast tokenizer will do.
        """
        encoded = self._tokenize(
            [[" ".join(words) for words in texts]],
            loss="truncated, and words behind the end get the most frequent label",
            return_offsets_mapping=True,
        )
        spans = zip(texts, encoded["offset_mapping"], strict=True)
        words = [words_at(words, offsets) for words, offsets in spans]
        return self._fields(encoded) | {"words": as_ragged(words)}

    def _tokenize(
        self,
        columns: Sequence[Sequence[str]],
        max_length: int | None = None,
        names: Sequence[str] = ("text", "text_pair"),
        loss: str = "truncated",
        **options: Any,
    ) -> BatchEncoding:
        """Call the tokenizer on columns of texts, by its names for them; again if some are too long."""
        longest = self.max_length if max_length is None else max_length
        least = self.tokenizer.num_special_tokens_to_add(len(columns) > 1) + len(columns)
        if longest < least:
            raise ValueError(
                f"a row needs at least {least} tokens, but the maximum is {longest}: raise data.max_length"
            )
        options |= dict(zip(names, map(list, columns), strict=False))
        options |= {"return_attention_mask": False, "return_token_type_ids": True, "verbose": False}
        encoded = self.tokenizer(**options)
        self.tell_of_dropped(chain(*columns))
        tell_of_cuts([len(ids) for ids in encoded["input_ids"]], longest, columns[0], loss=loss)
        if max(map(len, encoded["input_ids"])) > longest:
            encoded = self.tokenizer(**options, truncation="longest_first", max_length=longest)
            self.tokenizer.backend_tokenizer.no_truncation()  # or it would be saved with the tokenizer
        return encoded

    def _fields(self, encoded: Mapping[str, Any]) -> dict[str, Ragged]:
        names = ["input_ids", *(["token_type_ids"] if self.has_token_types else [])]
        for row, ids in enumerate(encoded["input_ids"]):
            if not ids:
                raise RowError(row, "has no text that the tokenizer knows: take it out")
        return {name: as_ragged(encoded[name]) for name in names}


def tell_of_cuts(
    lengths: Sequence[int],
    max_length: int,
    texts: Sequence[str],
    unit: str = "texts",
    loss: str = "truncated",
) -> None:
    """Warn of texts that are too long, if some are, and show how the first ones begin."""
    if cut := [place for place, length in enumerate(lengths) if length > max_length]:
        begins = ", ".join(f"{texts[place][:BEGINNING]!r}" for place in cut[:SHOWN])
        warnings.warn(
            f"{len(cut):,} of {len(lengths):,} {unit} are longer than {max_length} tokens, the longest has "
            f"{max(lengths):,}: they are {loss}; they begin {begins}{', ...' if len(cut) > SHOWN else ''}",
            stacklevel=2,
        )


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
    return ragged([np.asarray(row, dtype=np.int64) for row in rows])


def backend_of(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """Return the backend of a fast tokenizer."""
    if not tokenizer.is_fast:
        raise ValueError(
            f"{type(tokenizer).__name__} is not a fast tokenizer, which is needed for character offsets: "
            f"convert it to tokenizer.json"
        )
    return cast(PreTrainedTokenizerFast, tokenizer).backend_tokenizer


class LabelledExamples(FixedExamples):
    """Rows that a tokenizer has read, with their labels; they lie in memory, each field end to end.

    Args:
        fields: What each example has: `input_ids`, `labels`, ... A number is an array of one.
    """

    def __init__(self, fields: Mapping[str, Ragged]):
        self.fields = dict(fields)
        streams = (field for name, field in fields.items() if name.endswith("input_ids"))
        self.lengths = np.sum([field.lengths for field in streams], axis=0)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Example:
        return {name: field[index] for name, field in self.fields.items()} | {"index": index}

    def pack(self, indices: np.ndarray) -> PackedExamples:
        makers = {name: lambda field=field: select(field, indices) for name, field in self.fields.items()}
        return PackedExamples(self, indices, makers)


def select(field: Ragged, indices: np.ndarray) -> Ragged:
    """Copy some arrays out of a field, end to end."""
    lengths = field.lengths[indices]
    return Ragged(field.values[stretches(field.edges[indices], lengths)], lengths)


def numbers(values: np.ndarray) -> Ragged:
    """Lay out a number for each example (E,)."""
    return Ragged(values, np.ones(len(values), dtype=np.int64))


def vectors(values: np.ndarray) -> Ragged:
    """Lay out a row of numbers for each example (E, L)."""
    return Ragged(values.ravel(), np.full(len(values), values.shape[1], dtype=np.int64))
