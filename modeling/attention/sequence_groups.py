"""Length-sorted groups: packed sequences as a few small padded batches, for kernels that know no other.

Sequences are sorted by length and cut into groups, each padded to its own longest member, so that few pads
are computed. Both directions are gathers whose gradients are gathers too (every token has exactly one
slot), which is several times cheaper than the scatter-adds that autograd would make of them.

Shapes: N tokens, S sequences, P slots (tokens and the groups' pads), b sequences of a group, t slots of each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

MOST_GROUPS = 4


@dataclass(frozen=True)
class Slots:
    """A stream of tokens, rearranged into the slots of the groups.

    Args:
        token_of_slot: Which token stands in a slot, (P,); a pad repeats some real token, so that it stays
            finite.
        slot_of_token: Where each token stands, (N,).
        is_pad: Which slots are pads, (P,).
        lengths: Real tokens of each sequence, in sorted order, one (b,) per group.
        sizes: Slots of each group, as (b, t).
    """

    token_of_slot: Tensor
    slot_of_token: Tensor
    is_pad: Tensor
    lengths: tuple[Tensor, ...]
    sizes: tuple[tuple[int, int], ...]

    def split(self, x: Tensor) -> Iterator[Tensor]:
        """Rearrange a stream (N, ...) into one batch (b, t, ...) per group."""
        return self.cut(_ToSlots.apply(x, self.token_of_slot, self.slot_of_token))

    def split_gradient(self, gradient: Tensor) -> Iterator[Tensor]:
        """Rearrange the gradient of a joined stream (N, ...): that of pads, which were dropped, is zero."""
        return self.cut(slots_of_gradient(gradient, self.token_of_slot, self.is_pad))

    def cut(self, slots: Tensor) -> Iterator[Tensor]:
        """Cut slots (P, ...) into one batch (b, t, ...) per group."""
        parts = slots.split([count * length for count, length in self.sizes])
        return (part.unflatten(0, size) for part, size in zip(parts, self.sizes, strict=True))

    def join(self, parts: list[Tensor]) -> Tensor:
        """Bring the groups' batches (b, t, ...) back into the stream (N, ...)."""
        slots = torch.cat([part.flatten(0, 1) for part in parts])
        return _FromSlots.apply(slots, self.token_of_slot, self.slot_of_token, self.is_pad)

    def key_mask(self, group: int) -> Tensor | None:
        """Tell real keys from pads in a group, (b, 1, 1, t); `None` if it has no pads."""
        lengths, (_, longest) = self.lengths[group], self.sizes[group]
        if int(lengths.min()) == longest:
            return None
        return (torch.arange(longest, device=lengths.device) < lengths[:, None])[:, None, None]


@dataclass(frozen=True)
class SequenceGroups:
    """The slots of the queries and those of the keys: the same object in self-attention."""

    queries: Slots
    keys: Slots


def group_sequences(cu_seq_lens_q: Tensor, cu_seq_lens_k: Tensor | None = None) -> SequenceGroups:
    """Group sequences by the length of their queries; `cu_seq_lens_*` are (S+1,), `None`: the same."""
    bounds = cu_seq_lens_q.cpu().numpy().astype(np.int64)
    lengths = np.diff(bounds)
    order = np.argsort(-lengths, kind="stable")
    cuts = group_cuts(lengths[order])
    queries = arrange(bounds, order, cuts, cu_seq_lens_q.device)
    if cu_seq_lens_k is None:
        return SequenceGroups(queries, queries)
    return SequenceGroups(
        queries, arrange(cu_seq_lens_k.cpu().numpy().astype(np.int64), order, cuts, cu_seq_lens_q.device)
    )


def group_cuts(descending: np.ndarray) -> list[int]:
    """Cut falling lengths into groups of about equally many sequences; equal ones stay together."""
    even_cuts = (
        np.linspace(0, len(descending), min(MOST_GROUPS, len(np.unique(descending))) + 1).round().astype(int)
    )
    cuts = {0, len(descending)}
    for cut in even_cuts[1:-1]:
        cuts.add(int(np.searchsorted(-descending, -descending[cut], side="left")))
    return sorted(cuts)


def arrange(bounds: np.ndarray, order: np.ndarray, cuts: list[int], device: torch.device) -> Slots:
    """Return each token of the sequences in `bounds` (S+1,) its slot, groups being `order` cut at `cuts`."""
    lengths = np.diff(bounds)
    tokens, pads, group_lengths, sizes = [], [], [], []
    for start, stop in pairwise(cuts):
        members = order[start:stop]
        longest = int(lengths[members].max())
        offsets = np.arange(longest)[None]
        is_pad = offsets >= lengths[members, None]  # (b, t)
        # An empty sequence at the end of the stream begins behind its last token.
        first = np.minimum(bounds[members, None], bounds[-1] - 1)
        tokens.append(np.where(is_pad, first, bounds[members, None] + offsets).ravel())
        pads.append(is_pad.ravel())
        group_lengths.append(torch.from_numpy(lengths[members]).to(device))
        sizes.append((len(members), longest))
    token_of_slot, is_pad = np.concatenate(tokens), np.concatenate(pads)
    slot_of_token = np.empty(int(bounds[-1]), dtype=np.int64)
    slot_of_token[token_of_slot[~is_pad]] = np.flatnonzero(~is_pad)
    arrays = (torch.from_numpy(array).to(device) for array in (token_of_slot, slot_of_token, is_pad))
    return Slots(*arrays, lengths=tuple(group_lengths), sizes=tuple(sizes))


class _ToSlots(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, token_of_slot: Tensor, slot_of_token: Tensor) -> Tensor:
        ctx.save_for_backward(slot_of_token)
        return x.index_select(0, token_of_slot)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor, None, None]:
        # Pads take part in no result, so their gradients are zero and need not be added.
        (slot_of_token,) = ctx.saved_tensors
        return gradient.index_select(0, slot_of_token), None, None


class _FromSlots(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, token_of_slot: Tensor, slot_of_token: Tensor, is_pad: Tensor) -> Tensor:
        ctx.save_for_backward(token_of_slot, is_pad)
        return x.index_select(0, slot_of_token)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor, None, None, None]:
        return slots_of_gradient(gradient, *ctx.saved_tensors), None, None, None


def slots_of_gradient(gradient: Tensor, token_of_slot: Tensor, is_pad: Tensor) -> Tensor:
    """Give each slot its token's gradient, (N, ...) to (P, ...), and pads none."""
    slots = gradient.index_select(0, token_of_slot)
    return slots.masked_fill_(is_pad.view(-1, *[1] * (slots.dim() - 1)), 0)
