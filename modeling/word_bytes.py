"""Words as bytes: how a tagger reads a sentence that is already cut into words.

A token is a byte of UTF-8, and spaces separate words. So every word reaches the model as it is, and each of
several kinds of word vectors can look it up, or cut it, in its own way.

    "Tercet is"  ->  T e r c e t _ i s   ->   words "Tercet", "is"

Shapes: B batch, T positions.
"""

from itertools import pairwise

import torch
from torch import Tensor

from .pooling import find_sequences
from .word_layout import Words, find_words

PAD = 0
FIRST_BYTE = 1
"""Id of byte 0."""
NUM_IDS = FIRST_BYTE + 256
SPACE = FIRST_BYTE + ord(" ")
UNREADABLE = "\N{REPLACEMENT CHARACTER}"
"""Stands for a word of which nothing is left, and for bytes that are no UTF-8."""


def read_words(
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    cu_seq_lens: Tensor | None = None,
) -> tuple[Words, list[list[str]]]:
    """Find the words of a batch, and what they are: for each sentence a list.

    A space belongs to the word before it.

    Args:
        input_ids: Bytes (B, T), padded on either side, or packed (1, N).
        attention_mask: (B, T), 0 at pads.
        position_ids: (B, T). Those that restart in a single row tell of packed sentences.
        cu_seq_lens: Cumulative lengths (S+1,) of packed sentences.

    Raises:
        ValueError: There is no word, or an id stands for no byte.
    """
    if int(input_ids.max()) >= NUM_IDS or int(input_ids.min()) < 0:
        raise ValueError(
            f"input_ids has ids from {int(input_ids.min())} to {int(input_ids.max())}, but bytes have those "
            f"below {NUM_IDS}: use the tokenizer that is saved with the model"
        )
    sequences = find_sequences(input_ids, attention_mask, position_ids, cu_seq_lens, PAD)
    words = find_words(sequences, input_ids.shape, begins_word(input_ids))
    return words, texts_of(input_ids, words)


def begins_word(input_ids: Tensor) -> Tensor:
    """Tell which bytes (B, T) begin a word: those behind a space that are none themselves."""
    is_space = input_ids == SPACE
    return ~is_space & is_space.roll(1, dims=-1)


def texts_of(input_ids: Tensor, words: Words) -> list[list[str]]:
    """Write the words of a batch, for each sentence a list."""
    values = (input_ids.flatten()[words.tokens] - FIRST_BYTE).clamp(min=0).to(torch.uint8)
    written = bytes(values.tolist())
    bounds = [*words.first_tokens.tolist(), len(written)]
    texts = [
        written[first:last].decode(errors="replace").strip(" ") or UNREADABLE
        for first, last in pairwise(bounds)
    ]
    ends = words.lengths.cumsum(0).tolist()
    return [texts[first:last] for first, last in pairwise([0, *ends])]
