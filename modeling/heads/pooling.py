"""One vector for each sequence of a batch: its first token's, its last token's, or the mean of all.

Shapes: B batch, T positions, N tokens of a packed stream, S sequences, C model width. Rows of a padded batch
hold one sequence each (S = B); a packed stream (1, N) holds all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from ..attention.packing import Masks, bounds_of, restarts
from ..compatibility import is_tracing
from .losses import at_least_float32

TokenIndices = tuple[Tensor, Tensor]
"""Row and column of one token of each sequence, (S,) and (S,), as an index into (B, T, ...)."""


class Sequences(ABC):
    """Where the sequences of a batch lie. Abstract: padded or packed."""

    @property
    @abstractmethod
    def is_own(self) -> Tensor:
        """True at the tokens of each sequence in the row that holds it, (S, T), or packed (S, N)."""

    @property
    @abstractmethod
    def numbers(self) -> Tensor:
        """Number of the sequence of each token, (B, T), or packed (1, N); -1 at pads."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many sequences there are, S."""

    @property
    @abstractmethod
    def lengths(self) -> Tensor:
        """How many tokens each sequence has, (S,)."""

    @property
    @abstractmethod
    def first(self) -> TokenIndices:
        """Where the first token of each sequence is."""

    @property
    @abstractmethod
    def last(self) -> TokenIndices:
        """Where the last token of each sequence is."""

    @property
    @abstractmethod
    def origins(self) -> Tensor:
        """Column from which the user counts the positions in each sequence, (S,)."""

    @abstractmethod
    def total(self, states: Tensor) -> Tensor:
        """Sum of the vectors of each sequence, (S, C)."""

    def mean(self, states: Tensor) -> Tensor:
        """Mean of the vectors of each sequence, (S, C): the sum may exceed what float16 holds."""
        with torch.autocast(states.device.type, enabled=False):
            total = self.total(at_least_float32(states))
        return (total / self.lengths.clamp(min=1)[:, None]).to(states.dtype)


class PaddedRows(Sequences):
    """A row for each sequence, with pads wherever they stand; columns are counted with the pads."""

    def __init__(self, is_own: Tensor):
        self.mask = is_own

    @property
    def rows(self) -> Tensor:
        """Number of each row, (B,)."""
        return torch.arange(self.count, device=self.mask.device)

    @property
    def is_own(self) -> Tensor:
        """True at real tokens, (B, T)."""
        return self.mask

    @property
    def numbers(self) -> Tensor:
        """The row of each real token, (B, T)."""
        return torch.where(self.mask, self.rows[:, None], -1)

    @property
    def count(self) -> int:
        """The rows."""
        return self.mask.shape[0]

    @property
    def lengths(self) -> Tensor:
        """The row's real tokens."""
        return self.mask.sum(-1)

    @property
    def first(self) -> TokenIndices:
        """Behind the pads on the left."""
        return self.rows, self.mask.int().argmax(-1)

    @property
    def last(self) -> TokenIndices:
        """Before the pads on the right."""
        return self.rows, self.mask.shape[1] - 1 - self.mask.flip(-1).int().argmax(-1)

    @property
    def origins(self) -> Tensor:
        """Column 0 for each sequence, (S,)."""
        return torch.zeros_like(self.rows)

    def total(self, states: Tensor) -> Tensor:
        """Sum over the real tokens of each row (B, T, C)."""
        return (states * self.mask[..., None]).sum(1)


class PackedStream(Sequences):
    """One row of N tokens for all sequences, which follow each other at `cu_seq_lens` (S+1,)."""

    def __init__(self, cu_seq_lens: Tensor, num_tokens: int):
        self.cu_seq_lens, self.num_tokens = cu_seq_lens, num_tokens

    @property
    def begins(self) -> Tensor:
        """Where each sequence begins, (S,)."""
        return self.cu_seq_lens[:-1].long()

    @property
    def ends(self) -> Tensor:
        """Where each sequence ends, (S,)."""
        return self.cu_seq_lens[1:].long()

    @property
    def stream(self) -> Tensor:
        """Number of each token, (N,)."""
        return torch.arange(self.num_tokens, device=self.cu_seq_lens.device)

    @property
    def is_own(self) -> Tensor:
        """True at the tokens of each sequence, (S, N)."""
        numbers = self.stream
        return (self.begins[:, None] <= numbers) & (numbers < self.ends[:, None])

    @property
    def numbers(self) -> Tensor:
        """How many sequences end before each token, (1, N): none of them is a pad."""
        return torch.bucketize(self.stream, self.ends, right=True)[None]

    @property
    def count(self) -> int:
        """One less than there are bounds."""
        return self.cu_seq_lens.shape[0] - 1

    @property
    def lengths(self) -> Tensor:
        """From one bound to the next."""
        return self.cu_seq_lens.diff()

    @property
    def first(self) -> TokenIndices:
        """Where each sequence begins; an empty one behind all others has the last token."""
        begins = self.begins
        return torch.zeros_like(begins), begins.clamp(max=self.num_tokens - 1)

    @property
    def last(self) -> TokenIndices:
        """Before the next one begins."""
        ends = self.ends
        return torch.zeros_like(ends), ends - 1

    @property
    def origins(self) -> Tensor:
        """Column of the first token of each sequence, (S,)."""
        return self.begins

    def total(self, states: Tensor) -> Tensor:
        """Sum over each sequence of the stream (1, N, C)."""
        return self.is_own.to(states.dtype) @ states[0]


def find_sequences(
    tokens: Tensor,
    attention_mask: Tensor | Masks | None,
    position_ids: Tensor | None,
    cu_seq_lens: Tensor | None,
    pad_token_id: int | None = None,
) -> Sequences:
    """Find the sequences of a batch as the models do, and pads by their id where no mask tells of them.

    Args:
        tokens: Ids (B, T), or vectors (B, T, C), in which no pad can be told from a token.
        attention_mask: (B, T), 0 at pads; with a cache (B, past + T). Other masks tell of no pads.
        position_ids: (B, T); in one row without a mask they may restart, and so tell of packed sequences.
        cu_seq_lens: Cumulative lengths (S+1,) of sequences packed by the user.
        pad_token_id: The id of pads, if there is one.
    """
    num_rows, num_columns = tokens.shape[:2]
    mask = attention_mask if isinstance(attention_mask, Tensor) and attention_mask.dim() == 2 else None
    may_restart = cu_seq_lens is None and mask is None and num_rows == 1 and not is_tracing()
    if may_restart and position_ids is not None and restarts(position_ids).any():
        cu_seq_lens = bounds_of(position_ids)
    if cu_seq_lens is not None:
        return PackedStream(cu_seq_lens, num_columns)
    if mask is not None:
        return PaddedRows(mask[:, -num_columns:] != 0)
    if pad_token_id is not None and tokens.dim() == 2:
        return PaddedRows(tokens != pad_token_id)
    return PaddedRows(torch.ones(num_rows, num_columns, dtype=torch.bool, device=tokens.device))


def first_positions(
    tokens: Tensor,
    attention_mask: Tensor | Masks | None,
    position_ids: Tensor | None,
    cu_seq_lens: Tensor | None,
) -> Tensor:
    """Return the positions (S,) of the flattened batch at which sequences begin; see `find_sequences`."""
    rows, columns = find_sequences(tokens, attention_mask, position_ids, cu_seq_lens).first
    return rows * tokens.shape[1] + columns


def pool_first(states: Tensor, sequences: Sequences) -> Tensor:
    """Take the state of each sequence's first token."""
    return states[sequences.first]


def pool_last(states: Tensor, sequences: Sequences) -> Tensor:
    """Take the state of each sequence's last token."""
    return states[sequences.last]


def pool_mean(states: Tensor, sequences: Sequences) -> Tensor:
    """Average the states of each sequence's tokens."""
    return sequences.mean(states)


# Functions with names, since whole models are pickled, too.
POOLING: dict[str, Callable[[Tensor, Sequences], Tensor]] = {
    "first": pool_first,
    "last": pool_last,
    "mean": pool_mean,
}
"""One vector for each sequence, (S, C), of states (B, T, C), by `classifier_pooling`."""
