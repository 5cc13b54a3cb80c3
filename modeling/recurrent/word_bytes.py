"""Words as bytes: how a tagger reads a sentence that is already cut into words.

A token is a byte of UTF-8, and spaces separate words. So every word reaches the model as it is, and each of
several kinds of word vectors can look it up, or cut it, in its own way.

    "Tercet is"  ->  T e r c e t _ i s   ->   words "Tercet", "is"

Shapes: B batch, T positions.
"""

from itertools import pairwise

import torch
from torch import Tensor

from ..attention.masks import require_mask_of_tokens
from ..heads.pooling import find_sequences
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

    A space belongs to the word before it. Those at the beginning of a text belong to none, as pads do.

    Args:
        input_ids: Bytes (B, T), padded on either side, or packed (1, N).
        attention_mask: (B, T), 0 at pads.
        position_ids: (B, T). Those that restart in a single row tell of packed sentences.
        cu_seq_lens: Cumulative lengths (S+1,) of packed sentences.

    Raises:
        ValueError: There is no word, an id stands for no byte, or the mask does not fit.
    """
    if input_ids.numel() == 0:
        raise ValueError(f"input_ids has the shape {tuple(input_ids.shape)}: give at least one word")
    if int(input_ids.max()) >= NUM_IDS or int(input_ids.min()) < 0:
        raise ValueError(
            f"input_ids has ids from {int(input_ids.min())} to {int(input_ids.max())}, but bytes have those "
            f"below {NUM_IDS}: use the tokenizer that is saved with the model"
        )
    require_mask_of_tokens(attention_mask, input_ids.shape, cu_seq_lens)
    sequences = find_sequences(input_ids, attention_mask, position_ids, cu_seq_lens, PAD)
    is_outside = precedes_text(input_ids, sequences.numbers)
    words = find_words(sequences, input_ids.shape, begins_word(input_ids), is_outside)
    return words, texts_of(input_ids, words)


def begins_word(input_ids: Tensor) -> Tensor:
    """Return which bytes (B, T) begin a word: those behind a space that are none themselves."""
    is_space = input_ids == SPACE
    return ~is_space & is_space.roll(1, dims=-1)


def precedes_text(input_ids: Tensor, numbers: Tensor) -> Tensor:
    """Return which bytes (B, T) are spaces before the first word of their sequence, if it has one.

    Args:
        input_ids: (B, T).
        numbers: Number of the sequence of each byte, (B, T); -1 at pads.
    """
    number = numbers.flatten() + 1
    is_text = ((input_ids != SPACE).flatten() & (number > 0)).long()
    seen = is_text.cumsum(0)
    totals = torch.zeros(int(number.max()) + 1, dtype=torch.long, device=number.device)
    totals = totals.index_add(0, number, is_text)
    before = totals.cumsum(0) - totals
    is_before = (seen == before[number]) & (totals[number] > 0) & (number > 0)
    return is_before.view(input_ids.shape)


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
