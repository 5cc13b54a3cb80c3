"""Where the words of a batch lie, as rows for an LSTM, and the way back to the tokens.

A word is a token with those that continue it. Words of all sequences follow each other; for an LSTM each
sequence is a row, in the direction in which it reads, so that pads come last and reach no state.

    tokens  a ##b c . .      words  ab c d     rows  ab c      rows of the    c ab
            d .   . . .                              d  .      backward LSTM  d .

Shapes: B batch, T positions, M real tokens, N words, S sequences, W words of the longest, C channels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..heads.pooling import Sequences


@dataclass(frozen=True)
class Words:
    """The words of a batch.

    Args:
        shape: (B, T) of the tokens.
        tokens: Positions of the real tokens in the flattened batch, in the order of their sequences, (M,).
        word_of_token: Number of the word that each of them belongs to, (M,).
        first_tokens: Number, among the real tokens, of the first one of each word, (N,).
        sequence: Number of the sequence of each word, (N,).
        place: Number of words before it in its sequence, (N,).
        lengths: Words of each sequence, (S,).
        is_whole: Whether the word is a single token that does not continue another one, (N,).
    """

    shape: torch.Size
    tokens: Tensor
    word_of_token: Tensor
    first_tokens: Tensor
    sequence: Tensor
    place: Tensor
    lengths: Tensor
    is_whole: Tensor

    @property
    def positions(self) -> Tensor:
        """Where each word begins in the flattened batch, (N,)."""
        return self.tokens[self.first_tokens]

    def rows(self, x: Tensor, *, is_reversed: bool) -> Tensor:
        """Lay vectors (N, C) out in rows (S, W, C), each perhaps from its last word to its first."""
        rows = x.new_zeros(len(self.lengths), int(self.lengths.amax()), x.shape[-1])
        return rows.index_put(self.cells(is_reversed=is_reversed), x)

    def from_rows(self, rows: Tensor, *, is_reversed: bool) -> Tensor:
        """Take the vectors (N, C) of words out of rows (S, W, C): the inverse of `rows`."""
        return rows[self.cells(is_reversed=is_reversed)]

    def cells(self, *, is_reversed: bool) -> tuple[Tensor, Tensor]:
        """Row and column of each word, (N,) and (N,)."""
        column = self.lengths[self.sequence] - 1 - self.place if is_reversed else self.place
        return self.sequence, column

    def to_tokens(self, x: Tensor) -> Tensor:
        """Give every token the vector of its word, and pads zeros: (N, C) -> (B, T, C)."""
        flat = x.new_zeros(self.shape.numel(), x.shape[-1])
        return flat.index_copy(0, self.tokens, x[self.word_of_token]).unflatten(0, self.shape)

    def from_tokens(self, x: Tensor) -> Tensor:
        """Take the vectors (N, C) of words from where they begin, (B, T, C): the inverse of `to_tokens`."""
        return x.flatten(0, 1)[self.positions]

    def recorded(self, x: Tensor, record: list[Tensor] | None) -> Tensor:
        """Add vectors (N, C) to a record, if there is one, as those of tokens (B, T, C).

        What is returned comes from there, so that a gradient of what follows reaches what is recorded.
        """
        if record is None:
            return x
        record.append(self.to_tokens(x))
        return self.from_tokens(record[-1])

    def neighbours(self, values: Tensor, offset: int, fill: int) -> Tensor:
        """Give, where a word begins, the value of its neighbour: (N,) -> (B, T), `fill` where there is none.

        Args:
            values: Of the words.
            offset: 1 for the next word, -1 for the one before.
            fill: Elsewhere.
        """
        other = values.roll(-offset)
        place = self.place + offset
        has_neighbour = (place >= 0) & (place < self.lengths[self.sequence])
        flat = values.new_full((self.shape.numel(),), fill)
        flat[self.positions] = other.where(has_neighbour, fill)
        return flat.view(self.shape)


def find_words(
    sequences: Sequences,
    shape: torch.Size,
    begins_word: Tensor | None = None,
    is_outside: Tensor | None = None,
) -> Words:
    """Find the words of a batch.

    Args:
        sequences: Where the sequences are.
        shape: (B, T).
        begins_word: (B, T), False at tokens that continue the word before them, if any do. The first token of
            a sequence begins a word all the same.
        is_outside: (B, T), True at tokens that are of no word, as pads are.

    Raises:
        ValueError: There is no word.
    """
    number = sequences.numbers.flatten()
    if is_outside is not None:
        number = number.masked_fill(is_outside.flatten(), -1)
    tokens = (number >= 0).nonzero().squeeze(-1)
    if len(tokens) == 0:
        raise ValueError(f"a batch of {tuple(shape)} holds pads alone: give at least one word")
    sequence_of_token = number[tokens]
    is_new = sequence_of_token != sequence_of_token.roll(1)
    is_new[0] = True
    begins = torch.ones_like(is_new) if begins_word is None else begins_word.flatten()[tokens]
    first_tokens = (begins | is_new).nonzero().squeeze(-1)
    word_of_token = (begins | is_new).cumsum(0) - 1
    sequence = sequence_of_token[first_tokens]
    lengths = torch.bincount(sequence, minlength=sequences.count)
    place = torch.arange(len(sequence), device=sequence.device) - (lengths.cumsum(0) - lengths)[sequence]
    num_tokens = torch.bincount(word_of_token, minlength=len(first_tokens))
    return Words(
        shape=shape,
        tokens=tokens,
        word_of_token=word_of_token,
        first_tokens=first_tokens,
        sequence=sequence,
        place=place,
        lengths=lengths,
        is_whole=(num_tokens == 1) & begins[first_tokens],
    )
