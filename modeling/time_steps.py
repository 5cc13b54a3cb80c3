"""Sequences step by step: the layout in which recurrent layers read a batch without computing pads.

At a step, a recurrent layer reads one token of every sequence that has not ended. torch's `PackedSequence`
holds the tokens in this order: all first tokens, all second tokens, and so on, longer sequences before
shorter ones. Padded and packed batches (`packing.py`) are both permuted into it, wherever the pads stand.

Shapes: B batch, T positions, N real tokens, S sequences, C channels.
"""

from typing import Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .packing import positions_in, positions_of, sequence_ids


class TimeSteps:
    """Where the tokens of a batch stand in the order of steps, and back.

    Args:
        shape: Of the batch: (B, T), or packed (1, N).
        indices: Where the real tokens are in the flattened batch, (N,).
        positions: Of each in its sequence, (N,).
        rows: The sequence of each, (N,), by its number.
        lengths: Of the sequences, (S,).

    Raises:
        ValueError: If a sequence is empty.
    """

    def __init__(self, shape: torch.Size, indices: Tensor, positions: Tensor, rows: Tensor, lengths: Tensor):
        lengths = lengths.cpu()
        require_lengths(lengths)
        ordered, order = lengths.sort(descending=True, stable=True)
        sizes = (ordered[:, None] > torch.arange(int(ordered[0]))).sum(0)
        firsts = (sizes.cumsum(0) - sizes).to(indices.device)
        self.shape = shape
        self.batch_sizes = sizes
        self.order = order.to(indices.device)
        self.rank = self.order.argsort()
        slots = firsts[positions] + self.rank[rows]
        self.indices = torch.empty_like(indices).index_copy(0, slots, indices)

    @classmethod
    def of_mask(cls, mask: Tensor) -> Self:
        """Order a padded batch by its mask (B, T), 0 at pads, whichever side they are on."""
        is_real = mask != 0
        rows, columns = is_real.nonzero(as_tuple=True)
        indices = rows * mask.shape[1] + columns
        return cls(mask.shape, indices, positions_in(mask)[rows, columns], rows, is_real.sum(-1))

    @classmethod
    def of_bounds(cls, cu_seq_lens: Tensor, num_tokens: int) -> Self:
        """Order a packed stream (1, N) by its cumulative lengths (S+1,)."""
        indices = torch.arange(num_tokens, device=cu_seq_lens.device)
        positions, rows = positions_of(cu_seq_lens, num_tokens)[0], sequence_ids(cu_seq_lens, num_tokens)[0]
        return cls(torch.Size((1, num_tokens)), indices, positions, rows, cu_seq_lens.diff())

    def gather(self, x: Tensor) -> PackedSequence:
        """Read a batch (B, T, C) or stream (1, N, C) in the order of steps."""
        return PackedSequence(x.flatten(0, 1)[self.indices], self.batch_sizes, self.order, self.rank)

    def scatter(self, sequences: PackedSequence) -> Tensor:
        """Return to the layout of the batch, with zeros where the pads were."""
        batch = sequences.data.new_zeros(self.shape.numel(), sequences.data.shape[-1])
        return batch.index_copy(0, self.indices, sequences.data).unflatten(0, self.shape)


def require_lengths(lengths: Tensor) -> None:
    """Raise a `ValueError` if one of the sequences, of lengths (S,), is empty."""
    if not lengths.numel() or not lengths.all():
        empty = int((lengths == 0).nonzero()[0]) if lengths.numel() else 0
        raise ValueError(
            f"sequence {empty} of the batch is empty: give each sequence at least one token that its mask "
            "does not hide"
        )
