"""Two orders in which to read the sequences of a packed stream, each as columns that a recurrent layer reads.

    stream      a b c | d e          forward  a d        backward  c e
    places      0 1 2   3 4                   b e                  b d
                                              c .                  a .

What comes next in a column is what a language model of that direction predicts, so that both directions are
the same model in different orders. Pads come last in every column, where no state of a real character depends
on them: padded, packed and alone are the same for a recurrent layer, too. What is read at the same time lies
beside each other, as torch's kernels want it: rows would be copied.

Shapes: N characters of the stream, S sequences, T characters of the longest, B batch.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attention.masks import require_mask_of_tokens
from ..attention.packing import Padding, bounds_of, longest, require_bounds, restarts, sequence_ids
from ..heads.targets import IGNORE
from ..tracing import is_tracing


class ReadingOrder(NamedTuple):
    """Columns of a stream's characters, each in the order in which it is read."""

    places: Tensor
    """Where each character of the columns is in the stream (T, S); at pads, anywhere."""
    is_real: Tensor
    """False at pads (T, S)."""
    slots: Tensor
    """Where each character of the stream is in the flattened columns (N,)."""

    def columns(self, stream: Tensor) -> Tensor:
        """Lay what a stream has for its characters in columns: (N, ...) -> (T, S, ...)."""
        return stream[self.places]

    def stream(self, columns: Tensor, places: Tensor | None = None) -> Tensor:
        """Return from columns to the stream, or to some of its places (n,): (T, S, ...) -> (N or n, ...)."""
        return columns.flatten(0, 1)[self.slots if places is None else self.slots[places]]

    def targets(self, labels: Tensor) -> Tensor:
        """Find the label that comes next: (N,) -> (T, S); `IGNORE` where a column ends."""
        labels = self.columns(labels).masked_fill(~self.is_real, IGNORE)
        return F.pad(labels[1:], (0, 0, 0, 1), value=IGNORE)


class ReadingOrders(NamedTuple):
    """Both orders of a stream."""

    forward: ReadingOrder
    backward: ReadingOrder


def reading_orders(bounds: Tensor, num_characters: int, max_length: int | None = None) -> ReadingOrders:
    """Find both orders of a stream whose sequences lie between `bounds` (S + 1,).

    Args:
        bounds: Cumulative lengths.
        num_characters: N.
        max_length: T, if it is known.
    """
    begins, ends = bounds[:-1].long(), bounds[1:].long()
    steps = torch.arange(longest(bounds) if max_length is None else max_length, device=bounds.device)[:, None]
    stream = torch.arange(num_characters, device=bounds.device)
    sequences = sequence_ids(bounds, num_characters)[0]
    is_real = steps < ends - begins

    def order(places: Tensor, steps_before: Tensor) -> ReadingOrder:
        slots = steps_before * len(begins) + sequences
        return ReadingOrder(places.masked_fill(~is_real, 0), is_real, slots)

    return ReadingOrders(
        order(begins + steps, stream - begins[sequences]),
        order(ends - 1 - steps, ends[sequences] - 1 - stream),
    )


class Characters(NamedTuple):
    """The characters of a batch as a stream, and the way back to how the user gave them."""

    stream: Tensor
    """Their ids (N,)."""
    orders: ReadingOrders
    padding: Padding | None
    """None if the user gave a packed stream."""

    def flat(self, labels: Tensor) -> Tensor:
        """Bring labels (B, T) or (1, N) into the stream (N,)."""
        return (labels if self.padding is None else self.padding.pack(labels))[0]

    def restore(self, stream: Tensor) -> Tensor:
        """Lay what the stream has for its characters as the user gave them: (N, C) -> (B, T, C) or (1, N, C).

        At pads it is zero.
        """
        return stream[None] if self.padding is None else self.padding.unpack(stream[None])


def find_characters(
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    cu_seq_lens: Tensor | None = None,
    max_length: int | None = None,
) -> Characters:
    """Find the sequences in a batch, padded on any side (B, T) or packed (1, N).

    Args:
        input_ids: Ids of characters.
        attention_mask: (B, T), 0 at pads; by default there are none.
        position_ids: (1, N); those that restart tell of packed sequences where no bounds do.
        cu_seq_lens: Cumulative lengths (S + 1,) of packed sequences.
        max_length: The longest of them, if it is known.

    Raises:
        ValueError: The bounds do not cut the stream, the mask does not fit, or nothing but pads is given.
    """
    require_mask_of_tokens(attention_mask, input_ids.shape, cu_seq_lens)
    if cu_seq_lens is not None:
        require_bounds("cu_seq_lens_q", cu_seq_lens, input_ids.shape)
        return Characters(input_ids[0], reading_orders(cu_seq_lens, input_ids.shape[1], max_length), None)
    may_restart = attention_mask is None and len(input_ids) == 1 and not is_tracing()
    if may_restart and position_ids is not None and restarts(position_ids).any():
        return Characters(input_ids[0], reading_orders(bounds_of(position_ids), input_ids.shape[1]), None)
    padding = Padding(torch.ones_like(input_ids) if attention_mask is None else attention_mask)
    if len(padding.indices) == 0:
        raise ValueError(f"a batch of {tuple(input_ids.shape)} holds pads alone: give at least one character")
    orders = reading_orders(padding.cu_seq_lens, len(padding.indices))
    return Characters(padding.pack(input_ids)[0], orders, padding)
