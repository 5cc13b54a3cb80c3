"""Two orders in which to read the sequences of a packed stream, each as rows that a recurrent layer reads.

    stream      a b c | d e          forward  a b c        backward  c b a
    places      0 1 2   3 4                   d e .                  e d .

What comes next in a row is what a language model of that direction predicts, so that both directions are the
same model in different orders. Pads come last in every row, where no state of a real character depends on
them: padded, packed and alone are the same for a recurrent layer, too.

Shapes: N characters of the stream, S sequences, T characters of the longest, B batch.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from .packing import Padding, bounds_of, longest, require_bounds, restarts
from .targets import IGNORE
from .tracing import is_tracing


class ReadingOrder(NamedTuple):
    """Rows of a stream's characters, in the order in which they are read."""

    places: Tensor
    """Where each character of the rows is in the stream (S, T); at pads, anywhere."""
    is_real: Tensor
    """False at pads (S, T)."""

    def rows(self, stream: Tensor) -> Tensor:
        """Lay what a stream has for its characters in rows: (N, ...) -> (S, T, ...)."""
        return stream[self.places]

    def stream(self, rows: Tensor) -> Tensor:
        """Return from rows to the stream: (S, T, ...) -> (N, ...)."""
        stream = rows.new_zeros(int(self.is_real.sum()), *rows.shape[2:])
        return stream.index_copy(0, self.places[self.is_real], rows[self.is_real])

    def targets(self, labels: Tensor) -> Tensor:
        """Find the label that comes next, for each character: (N,) -> (S, T); `IGNORE` where a row ends."""
        labels = self.rows(labels).masked_fill(~self.is_real, IGNORE)
        return F.pad(labels[:, 1:], (0, 1), value=IGNORE)

    def cut(self, length: int) -> Self:
        """Keep the first columns of all rows; there is no way back to the stream then."""
        return type(self)(self.places[:, :length], self.is_real[:, :length])


class ReadingOrders(NamedTuple):
    """Both orders of a stream."""

    forward: ReadingOrder
    backward: ReadingOrder


def reading_orders(bounds: Tensor, max_length: int | None = None) -> ReadingOrders:
    """Find both orders of a stream whose sequences lie between `bounds` (S + 1,).

    Args:
        bounds: Cumulative lengths.
        max_length: T, if it is known.
    """
    begins, ends = bounds[:-1, None].long(), bounds[1:, None].long()
    columns = torch.arange(longest(bounds) if max_length is None else max_length, device=bounds.device)
    is_real = columns < ends - begins
    forward, backward = begins + columns, ends - 1 - columns
    return ReadingOrders(
        *(ReadingOrder(places.masked_fill(~is_real, 0), is_real) for places in (forward, backward))
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
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    cu_seq_lens: Tensor | None,
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
        ValueError: The bounds do not cut the stream.
    """
    if cu_seq_lens is not None:
        require_bounds("cu_seq_lens_q", cu_seq_lens, input_ids.shape)
        return Characters(input_ids[0], reading_orders(cu_seq_lens, max_length), None)
    may_restart = attention_mask is None and len(input_ids) == 1 and not is_tracing()
    if may_restart and position_ids is not None and restarts(position_ids).any():
        return Characters(input_ids[0], reading_orders(bounds_of(position_ids)), None)
    padding = Padding(torch.ones_like(input_ids) if attention_mask is None else attention_mask)
    return Characters(padding.pack(input_ids)[0], reading_orders(padding.cu_seq_lens), padding)
