"""One vector for each sequence of a batch: its first token's, its last token's, or the mean of all.

Shapes: B batch, T positions, N tokens of a packed stream, S sequences, C model width. Rows of a padded batch
hold one sequence each (S = B); a packed stream (1, N) holds all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .packing import bounds_of, restarts, sequence_ids
from .tracing import is_tracing

Places = tuple[Tensor, Tensor]
"""Row and column of one token of each sequence, (S,) and (S,), as an index into (B, T, ...)."""


@dataclass(frozen=True)
class Sequences(ABC):
    """Where the sequences of a batch lie. Abstract: padded or packed.

    Args:
        is_own: (S, T), or packed (S, N): true at the tokens of each sequence in the row that holds it.
    """

    is_own: Tensor

    @property
    @abstractmethod
    def rows(self) -> Tensor:
        """Row that holds each sequence, (S,)."""

    @property
    @abstractmethod
    def origins(self) -> Tensor:
        """Column from which the user counts the positions in each sequence, (S,)."""

    @abstractmethod
    def total(self, states: Tensor) -> Tensor:
        """Sum of the vectors of each sequence, (S, C)."""

    @property
    def first(self) -> Places:
        """Where the first token of each sequence is."""
        return self.rows, self.is_own.int().argmax(-1)

    @property
    def last(self) -> Places:
        """Where the last token of each sequence is."""
        return self.rows, self.is_own.shape[1] - 1 - self.is_own.flip(-1).int().argmax(-1)

    def mean(self, states: Tensor) -> Tensor:
        """Mean of the vectors of each sequence, (S, C)."""
        return self.total(states) / self.is_own.sum(-1, keepdim=True).clamp(min=1)


class PaddedRows(Sequences):
    """A row for each sequence, with pads wherever they stand; columns are counted with the pads."""

    @property
    def rows(self) -> Tensor:
        """Row that holds each sequence, (S,)."""
        return torch.arange(len(self.is_own), device=self.is_own.device)

    @property
    def origins(self) -> Tensor:
        """Column 0 for each sequence, (S,)."""
        return torch.zeros_like(self.rows)

    def total(self, states: Tensor) -> Tensor:
        """Sum over the real tokens of each row (B, T, C)."""
        return (states * self.is_own[..., None]).sum(1)


class PackedStream(Sequences):
    """One row for all sequences, in which each of them begins anew at position 0."""

    @property
    def rows(self) -> Tensor:
        """Row 0 for each sequence, (S,)."""
        return torch.zeros_like(self.origins)

    @property
    def origins(self) -> Tensor:
        """Column of the first token of each sequence, (S,)."""
        return self.is_own.int().argmax(-1)

    def total(self, states: Tensor) -> Tensor:
        """Sum over each sequence of the stream (1, N, C)."""
        return self.is_own.to(states.dtype) @ states[0]


def find_sequences(
    tokens: Tensor,
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    cu_seq_lens: Tensor | None,
    pad_token_id: int | None,
) -> Sequences:
    """Find the sequences of a batch as the models do, and pads by their id where no mask tells of them.

    Args:
        tokens: Ids (B, T), or vectors (B, T, C), in which no pad can be told from a token.
        attention_mask: (B, T), 0 at pads; with a cache (B, past + T).
        position_ids: (B, T); in one row without a mask they may restart, and so tell of packed sequences.
        cu_seq_lens: Cumulative lengths (S+1,) of sequences packed by the user.
        pad_token_id: The id of pads, if there is one.
    """
    num_rows, num_columns = tokens.shape[:2]
    has_mask = attention_mask is not None and attention_mask.dim() == 2
    may_restart = cu_seq_lens is None and not has_mask and num_rows == 1 and not is_tracing()
    if may_restart and position_ids is not None and restarts(position_ids).any():
        cu_seq_lens = bounds_of(position_ids)
    if cu_seq_lens is not None:
        numbers = torch.arange(len(cu_seq_lens) - 1, device=tokens.device)
        return PackedStream(sequence_ids(cu_seq_lens, num_columns) == numbers[:, None])
    if attention_mask is not None and has_mask:
        return PaddedRows(attention_mask[:, -num_columns:] != 0)
    if pad_token_id is not None and tokens.dim() == 2:
        return PaddedRows(tokens != pad_token_id)
    return PaddedRows(torch.ones(num_rows, num_columns, dtype=torch.bool, device=tokens.device))


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
