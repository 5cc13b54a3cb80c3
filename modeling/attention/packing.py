"""Two layouts of a batch of sequences, and how one becomes the other.

Padded: (B, T) with pads, and a mask that says which tokens are real. Packed: (1, N), all real tokens in one
flat stream, and the cumulative lengths that say where sequences begin and end (transformers' flash
convention). Layers that work position by position do not care; attention alone must know. Packed, padding
costs nothing (Zeng et al., 2022, "Boosting Distributed Training Performance of the Unpadded BERT Model").

For kernels that know padded batches only, packed sequences become a few small ones: sequences are sorted by
length and cut into groups, each padded to its own longest member, so that few pads are computed. Both
directions are gathers whose gradients are gathers too (every token has exactly one slot), which is several
times cheaper than the scatter-adds that autograd would make of them.

Where all sequences are short, several share a row of slots, and a mask keeps them apart. So few slots are
pads then that the stream itself takes the order of the slots, once for all layers, and none of them gathers.

Where nothing is cached, a prompt attends to itself alone. Long prompts of sparse patterns can then be packed
and computed by blocks, as without a cache. Tokens behind the prompt need its
keys and values as rows of the padded batch, with zeros at pads, which their masks forbid.

Shapes: B batch, T positions, N tokens, S sequences, C model width; M tokens of keys, G key-value
heads, D head width; P slots (tokens and the groups' pads), b sequences of a group, t slots of each.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask
from transformers.cache_utils import Cache, EncoderDecoderCache

from ..compatibility import is_tracing

MOST_GROUPS, GROUP_COST = 4, 4096
"""How many groups there are at most, and what the calls of kernels for one cost, in pairs of slots."""

LEAST_LENGTH = 16
"""Slots of a group's sequences: with fewer, a row fills no register, and softmax goes number by number."""

LONGEST_SHARING = 128
"""Tokens of the longest sequence up to which sequences may share rows."""

ROW_STEP, ROW_CHOICES, SLOT_COST, GATHER_COST = 16, 4, 384, 50
"""Of shared rows: what their length is a multiple of, how many lengths are tried, and what the products of a
slot, and the gathers of a token that they save, cost in pairs of slots."""

LEAST_STEP, LARGEST_STEP = 8, 64
"""Bounds of the steps between the sizes to which streams are filled up, in tokens."""


@dataclass(frozen=True)
class Slots:
    """A stream of tokens in another order: that of slots, some of which are pads.

    Args:
        token_of_slot: Which token stands in a slot, (P,); a pad repeats some real token, so that it stays
            finite.
        slot_of_token: Where each token stands, (N,).
        is_pad: Which slots are pads, (P,).
    """

    token_of_slot: Tensor
    slot_of_token: Tensor
    is_pad: Tensor

    def arrange(self, x: Tensor) -> Tensor:
        """Bring a stream (N, ...) into the order of the slots (P, ...)."""
        return _ToSlots.apply(x, self.token_of_slot, self.slot_of_token)

    def restore(self, slots: Tensor) -> Tensor:
        """Bring slots (P, ...) back into the order of the stream (N, ...)."""
        return _FromSlots.apply(slots, self.token_of_slot, self.slot_of_token, self.is_pad)


@dataclass(frozen=True)
class GroupSlots(Slots):
    """The slots of groups of sequences, each of which has a row.

    Args:
        lengths: Real tokens of each sequence, in sorted order, one (b,) per group.
        sizes: Slots of each group, as (b, t).
    """

    lengths: tuple[Tensor, ...]
    sizes: tuple[tuple[int, int], ...]

    def split(self, x: Tensor) -> Iterator[Tensor]:
        """Rearrange a stream (N, ...) into one batch (b, t, ...) per group."""
        return self.cut(self.arrange(x))

    def split_gradient(self, gradient: Tensor) -> Iterator[Tensor]:
        """Rearrange the gradient of a joined stream (N, ...): that of pads, which were dropped, is zero."""
        return self.cut(slots_of_gradient(gradient, self.token_of_slot, self.is_pad))

    def cut(self, slots: Tensor) -> Iterator[Tensor]:
        """Cut slots (P, ...) into one batch (b, t, ...) per group."""
        parts = slots.split([count * length for count, length in self.sizes])
        return (part.unflatten(0, size) for part, size in zip(parts, self.sizes, strict=True))

    def join(self, parts: list[Tensor]) -> Tensor:
        """Bring the groups' batches (b, t, ...) back into the stream (N, ...)."""
        return self.restore(torch.cat([part.flatten(0, 1) for part in parts]))

    def key_mask(self, group: int) -> Tensor | None:
        """Return which keys of a group are real, (b, 1, 1, t); `None` if it has no pads."""
        lengths, (_, longest) = self.lengths[group], self.sizes[group]
        if int(lengths.min()) == longest:
            return None
        return (torch.arange(longest, device=lengths.device) < lengths[:, None])[:, None, None]


@dataclass(frozen=True)
class SharedRows(Slots):
    """Rows of slots that sequences share; all layers read the stream in the order of the slots.

    Args:
        numbers: Which sequence stands in a slot, (b, t), -1 at pads.
        added: What keeps the sequences apart in the scores, by pattern and type, once it is known.
    """

    numbers: Tensor
    added: dict[Any, Tensor | None] = field(default_factory=dict)


@dataclass(frozen=True)
class SequenceGroups:
    """The slots of the queries and those of the keys: the same object in self-attention."""

    queries: GroupSlots
    keys: GroupSlots


def group_sequences(cu_seq_lens_q: Tensor, cu_seq_lens_k: Tensor) -> SequenceGroups:
    """Group sequences by the length of their queries; `cu_seq_lens_*` are (S+1,)."""
    bounds, device = cu_seq_lens_q.cpu().numpy().astype(np.int64), cu_seq_lens_q.device
    lengths = np.diff(bounds)
    order = np.argsort(-lengths, kind="stable")
    cuts = group_cuts(lengths[order])
    queries = arrange(bounds, order, cuts, device)
    if cu_seq_lens_k.data_ptr() == cu_seq_lens_q.data_ptr():
        return SequenceGroups(queries, queries)
    return SequenceGroups(queries, arrange(cu_seq_lens_k.cpu().numpy().astype(np.int64), order, cuts, device))


def group_cuts(descending: np.ndarray) -> list[int]:
    """Cut falling lengths, equal ones together, into the groups that cost least, by dynamic programming."""
    negative, first = np.unique(-descending, return_index=True)
    edges = np.append(first, len(descending))
    pairs = np.maximum(np.append(-negative, 0), LEAST_LENGTH) ** 2.0
    rows = edges - edges[:, None]  # of a group from edge to edge, which may have none
    costs = np.where(rows < 0, np.inf, (rows > 0) * GROUP_COST + rows * pairs[:, None])
    best, earlier, places = np.where(edges == 0, 0.0, np.inf), [], [len(first)]
    for _ in range(MOST_GROUPS):
        totals = best[:, None] + costs
        best, earlier = totals.min(0), [totals.argmin(0), *earlier]
    for edge in earlier:
        places.append(edge[places[-1]])
    return sorted({int(edges[place]) for place in places})


def arrange(bounds: np.ndarray, order: np.ndarray, cuts: list[int], device: torch.device) -> GroupSlots:
    """Give each token of the sequences in `bounds` (S+1,) its slot, groups being `order` cut at `cuts`."""
    lengths = np.diff(bounds)
    tokens, pads, group_lengths, sizes = [], [], [], []
    for start, stop in pairwise(cuts):
        members = order[start:stop]
        longest = int(lengths[members].max())
        if longest > lengths[members].min():
            longest = rounded_length(longest)
        offsets = np.arange(longest)[None]
        is_pad = offsets >= lengths[members, None]  # (b, t)
        # An empty sequence at the end of the stream begins behind its last token.
        first = np.minimum(bounds[members, None], bounds[-1] - 1)
        tokens.append(np.where(is_pad, first, bounds[members, None] + offsets).ravel())
        pads.append(is_pad.ravel())
        group_lengths.append(torch.from_numpy(lengths[members]).to(device))
        sizes.append((len(members), longest))
    arrays = slot_arrays(np.concatenate(tokens), np.concatenate(pads), int(bounds[-1]))
    tensors = (torch.from_numpy(array).to(device) for array in arrays)
    return GroupSlots(*tensors, lengths=tuple(group_lengths), sizes=tuple(sizes))


def slot_arrays(
    token_of_slot: np.ndarray, is_pad: np.ndarray, num_tokens: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return `token_of_slot`, `slot_of_token` and `is_pad` of slots."""
    slot_of_token = np.empty(num_tokens, dtype=np.int64)
    slot_of_token[token_of_slot[~is_pad]] = np.flatnonzero(~is_pad)
    return token_of_slot, slot_of_token, is_pad


def share_rows(sequences: "PackedSequences") -> SharedRows | None:
    """Let the sequences of a stream share rows.

    `None`: one is long, or more slots and pairs cost more than the gathers of groups.
    """
    bounds = sequences.cu_seq_lens_q.numpy().astype(np.int64)
    lengths = np.diff(bounds)
    least = max(-(-int(lengths.max()) // ROW_STEP), 2) * ROW_STEP
    if least > LONGEST_SHARING:
        return None
    widths = range(least, least + ROW_CHOICES * ROW_STEP, ROW_STEP)
    choices = ((fill_rows(lengths, width), width) for width in widths)
    rows, width = min(choices, key=lambda each: len(each[0]) * each[1] * (each[1] + SLOT_COST))
    sizes = sequences.groups.queries.sizes
    pairs = sum(GROUP_COST + count * max(length, LEAST_LENGTH) ** 2 for count, length in sizes)
    shared_cost = GROUP_COST + len(rows) * width * (width + SLOT_COST)
    if shared_cost > pairs + bounds[-1] * (SLOT_COST + GATHER_COST):
        return None
    members = np.array([number for row in rows for number in (*row, -1)])
    counts = lengths[members]
    counts[members < 0] = [width - lengths[row].sum() for row in rows]
    numbers = members.repeat(counts)
    first = np.where(members < 0, 0, bounds[members])
    offsets = np.arange(numbers.size) - (counts.cumsum() - counts).repeat(counts)
    token_of_slot = np.where(numbers < 0, 0, first.repeat(counts) + offsets)
    arrays = slot_arrays(token_of_slot, numbers < 0, int(bounds[-1]))
    return SharedRows(
        *map(torch.from_numpy, arrays), numbers=torch.from_numpy(numbers.reshape(len(rows), width))
    )


def fill_rows(lengths: np.ndarray, width: int) -> list[list[int]]:
    """Put each sequence, long ones first, into the fullest row of slots that has room: their numbers."""
    rows: list[list[int]] = []
    with_room: list[list[list[int]]] = [[] for _ in range(width + 1)]
    for number in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[number])
        room = next((room for room in range(length, width) if with_room[room]), width)
        if room == width:
            rows.append([])
            with_room[width].append(rows[-1])
        row = with_room[room].pop()
        row.append(number)
        with_room[room - length].append(row)
    return rows


def rounded_length(length: int) -> int:
    """Round the length of a group that has pads anyway, so that few lengths occur; see `filling`.

    >>> from tercet.modeling.attention.packing import rounded_length
    >>> [rounded_length(length) for length in (3, 13, 20, 33, 100)]
    [16, 16, 20, 36, 104]
    """
    step = 1 << max(length.bit_length() - 4, 0)
    return max(-(-length // step) * step, LEAST_LENGTH)


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
    """Take each slot's gradient from its token, (N, ...) to (P, ...), and none at pads."""
    slots = gradient.index_select(0, token_of_slot)
    return slots.masked_fill_(is_pad.view(-1, *[1] * (slots.dim() - 1)), 0)


class Tiles(NamedTuple):
    """Which pairs of a stream may attend, for flex attention: see `attention/gpu_kernels.py`."""

    mask: BlockMask
    """Which pairs attend, by blocks."""
    added: Callable[[Tensor, Tensor, torch.dtype], Tensor] | None
    """What the pattern adds to the scores of tokens of these numbers, in a type."""


@dataclass(frozen=True)
class PackedSequences:
    """Where sequences begin and end in a flat stream of queries, and in one of keys.

    Args:
        cu_seq_lens_q: Cumulative lengths of the query side, (S+1,), from 0 to its number of tokens.
        cu_seq_lens_k: The same of the key side; the same tensor in self-attention.
        max_length_q: Longest sequence of the query side, in tokens; found when needed if not known.
        max_length_k: Longest sequence of the key side.
        global_tokens: (N,), true at tokens that are chosen to be global, in self-attention.
        key_padding: The padded batch in whose layout a cache keeps the keys; `None`: theirs is the stream's.
        tiles: Those of the pattern of some layers, if flex attention computes them.
    """

    cu_seq_lens_q: Tensor
    cu_seq_lens_k: Tensor
    max_length_q: int | None = None
    max_length_k: int | None = None
    global_tokens: Tensor | None = None
    key_padding: "Padding | None" = None
    tiles: Tiles | None = None

    @classmethod
    def of(cls, cu_seq_lens: Tensor, max_length: int | None = None) -> "PackedSequences":
        """Bound the sequences of a stream that attends to itself."""
        return cls(cu_seq_lens, cu_seq_lens, max_length, max_length)

    @cached_property
    def groups(self) -> SequenceGroups:
        return group_sequences(self.cu_seq_lens_q, self.cu_seq_lens_k)

    def extended(self, num_queries: int, num_keys: int) -> "PackedSequences":
        """Append sequences of further tokens, which are no longer than the others where that is possible."""
        sides = ((self.cu_seq_lens_q, num_queries), (self.cu_seq_lens_k, num_keys))
        count = max(-(-more // max(longest(bounds), 1)) for bounds, more in sides)
        count = min(count, num_queries, num_keys)
        parts = torch.arange(1, count + 1)
        queries, keys = (torch.cat([b, b[-1] + (parts * more // count).to(b.dtype)]) for b, more in sides)
        is_self = self.cu_seq_lens_k is self.cu_seq_lens_q
        chosen = None if self.global_tokens is None else F.pad(self.global_tokens, (0, num_queries))
        return PackedSequences(queries, queries if is_self else keys, global_tokens=chosen)

    @property
    def flash_arguments(self) -> dict[str, Any]:
        return {
            "cu_seq_lens_q": self.cu_seq_lens_q,
            "cu_seq_lens_k": self.cu_seq_lens_k,
            "max_length_q": self.max_length_q or longest(self.cu_seq_lens_q),
            "max_length_k": self.max_length_k or longest(self.cu_seq_lens_k),
        }


Mask = Tensor | BlockMask | PackedSequences | SharedRows | None
"""Which pairs may attend: what transformers builds for its kernels; of a stream, bounds or shared rows."""

Masks = dict[str, Mask]
"""The same for each type of layer that a model has."""


class Padding:
    """Where the real tokens of a padded batch are: converts it to the packed layout and back.

    Args:
        mask: (B, T), 0 at pads, wherever they stand, and anything else at real tokens.
    """

    def __init__(self, mask: Tensor):
        mask = mask != 0
        self.shape = mask.shape
        self.indices = mask.flatten().nonzero().squeeze(-1)  # (N,)
        self.cu_seq_lens = cumulative(mask.sum(dim=-1))
        self.position_ids = positions_in(mask).flatten()[self.indices][None]  # (1, N)

    @property
    def has_pads(self) -> bool:
        return len(self.indices) < self.shape.numel()

    def pack(self, x: Tensor) -> Tensor:
        """Drop the pads: (B, T, ...) -> (1, N, ...)."""
        return x.expand(*self.shape, *x.shape[2:]).flatten(0, 1)[self.indices][None]

    def places(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Find positions (n,) of the flattened padded batch among the N packed ones, and which are tokens."""
        places = torch.searchsorted(self.indices, positions).clamp(max=len(self.indices) - 1)
        return places, self.indices[places] == positions

    def unpack(self, x: Tensor) -> Tensor:
        """Put zeros where the pads were: (1, N, ...) -> (B, T, ...)."""
        padded = x.new_zeros(self.shape.numel(), *x.shape[2:])
        return padded.index_copy(0, self.indices, x[0]).unflatten(0, self.shape)


@dataclass
class Layout:
    """How the tokens of one forward pass lie in memory, once the padded or packed input is understood.

    Args:
        position_ids: (B, T) or (1, N).
        sequences: Bounds of the packed sequences, if the packed kernel is to keep them apart.
        sequence_ids: Which sequence each token belongs to, (B, T), if a mask is to keep them apart.
        padding: The way back to the padded input, if the model packed it.
    """

    position_ids: Tensor
    sequences: PackedSequences | None = None
    sequence_ids: Tensor | None = None
    padding: Padding | None = None

    @classmethod
    def unpadded(cls, padding: Padding, position_ids: Tensor | None) -> "Layout":
        """Pack the real tokens of a padded batch; by default positions count them."""
        positions = padding.position_ids if position_ids is None else padding.pack(position_ids)
        bounds = padding.cu_seq_lens
        return cls(positions, PackedSequences(bounds, bounds, key_padding=padding), padding=padding)

    @property
    def has_rows(self) -> bool:
        """Whether the user gave each row one text, so that a cache can keep it."""
        return self.padding is not None or (self.sequences is None and self.sequence_ids is None)

    def pack(self, x: Tensor | None) -> Tensor | None:
        """Bring a further input (B, T, ...) into the same layout."""
        return x if x is None or self.padding is None else self.padding.pack(x)

    def unpack(self, x: Tensor) -> Tensor:
        """Return to the layout in which the user gave the tokens."""
        return x if self.padding is None else self.padding.unpack(x)


def cumulative(lengths: Tensor) -> Tensor:
    """Cumulative lengths (S+1,) of sequences of `lengths` (S,), from 0, in int32 as kernels want them."""
    return F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)


def filling(num_tokens: int) -> int:
    """Count the tokens, one or more, that fill a stream up to one of few sizes.

    oneDNN compiles each product for its sizes, which takes longer than a small product itself, and packed
    streams have another size in every step. From 128 tokens on, about 3 % are filling, on average at most.

    >>> from tercet.modeling.attention.packing import filling
    >>> [number + filling(number) for number in (5, 100, 420, 431, 432, 4090)]
    [8, 104, 432, 432, 448, 4096]
    """
    step = min(max(1 << max(num_tokens.bit_length() - 5, 0), LEAST_STEP), LARGEST_STEP)
    return step - num_tokens % step


def longest(cu_seq_lens: Tensor) -> int:
    return int(cu_seq_lens.diff().max())


def positions_in(mask: Tensor) -> Tensor:
    """Count the real tokens before each position, (B, T), wherever the pads stand; never below 0."""
    return ((mask != 0).long().cumsum(-1) - 1).clamp(min=0)


def has_holes(mask: Tensor) -> bool:
    """Return whether pads stand between the real tokens of a row of a mask (B, T)."""
    is_real = mask != 0
    begins = is_real & ~F.pad(is_real, (1, 0))[:, :-1]
    return bool((begins.sum(-1) > 1).any())


def positions_of(cu_seq_lens: Tensor, num_tokens: int) -> Tensor:
    """Positions that restart with every sequence, (1, N)."""
    stream = torch.arange(num_tokens, device=cu_seq_lens.device)
    return (stream - cu_seq_lens.long()[sequence_ids(cu_seq_lens, num_tokens)[0]])[None]


def sequence_ids(cu_seq_lens: Tensor, num_tokens: int) -> Tensor:
    """Number the sequence of every token of a stream, (1, N), from 0."""
    stream = torch.arange(num_tokens, device=cu_seq_lens.device, dtype=cu_seq_lens.dtype)
    return torch.searchsorted(cu_seq_lens[1:].contiguous(), stream, right=True)[None]


def is_padding_mask(mask: object) -> TypeGuard[Tensor]:
    """Return whether a mask is (B, S), and says which tokens are real."""
    return isinstance(mask, Tensor) and mask.dim() == 2


def is_of_pairs(mask: object) -> bool:
    """Return whether a mask is given that says of pairs whether they may attend, in whatever form."""
    return mask is not None and not is_padding_mask(mask)


def first_tokens(attention_mask: Tensor | None, sequence_ids: Tensor | None) -> Tensor | None:
    """Return the places at which the sequences of a batch begin.

    They are (B, T), for each token, if `sequence_ids` (B, T) number several sequences of a row; (B,) if
    `attention_mask` (B, S) tells of pads, which no other form of mask does; `None` if all begin at 0.
    """
    if sequence_ids is not None:
        places = torch.arange(sequence_ids.shape[1], device=sequence_ids.device).expand_as(sequence_ids)
        is_first = sequence_ids != F.pad(sequence_ids, (1, 0), value=-1)[:, :-1]
        return places.where(is_first, 0).cummax(-1).values
    if is_padding_mask(attention_mask):
        return (attention_mask != 0).int().argmax(-1)
    return None


def text_lengths(attention_mask: Tensor | None, sequence_ids: Tensor | None, length: int) -> Tensor | int:
    """Return the length of the text of each token, in places: (B, T), (B, 1), or one number for all.

    `sequence_ids` (B, T) number the sequences of a row, `attention_mask` (B, S) is 0 at pads. Rows of which
    they tell nothing have `length` places.
    """
    if sequence_ids is not None:
        return (sequence_ids[:, :, None] == sequence_ids[:, None]).sum(-1)
    if is_padding_mask(attention_mask):
        is_real = (attention_mask != 0).int()
        pads_before, pads_behind = is_real.argmax(-1), is_real.flip(-1).argmax(-1)
        return (attention_mask.shape[1] - pads_before - pads_behind)[:, None]
    return length


def within(sequences_q: Tensor, sequences_k: Tensor) -> Callable[..., Tensor]:
    """Allow pairs of one sequence only, as a mask function; `sequences_*` number them, (B, T)."""

    def same_sequence(batch_idx: Tensor, head_idx: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return sequences_q[batch_idx, q_idx] == sequences_k[batch_idx, kv_idx]

    return same_sequence


def select_positions(x: Tensor, positions: Tensor | None) -> Tensor:
    """Select positions (n,) of the flattened batch (B, T, C), as (1, n, C); `None` keeps all as they are."""
    return x if positions is None else x.flatten(0, 1)[positions][None]


def is_empty(cache: Cache | None) -> bool:
    """Return whether a cache is known to hold nothing, neither of the text nor of an encoder's output.

    A length that lies on another device is not waited for, and a graph that is made serves any length: the
    cache then counts as filled.
    """
    if cache is None:
        return True
    if is_tracing() or (isinstance(cache, EncoderDecoderCache) and any(cache.is_updated.values())):
        return False
    length: int | Tensor = cache.get_seq_length()
    return (isinstance(length, int) or length.is_cpu) and int(length) == 0


def of_target(cache: Cache | None) -> Cache | None:
    """Return the part of a cache that is of the text itself, where it also has one of an encoder's output."""
    return cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache


def extend(
    cache: Cache, key: Tensor, value: Tensor, layer_idx: int, mask: Mask
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Extend a layer of a cache by keys and values (B, G, S, D), or (1, G, M, D) of a packed prompt.

    Return what the layer then gives, padded; and what queries attend to, in their own layout.
    """
    padding = mask.key_padding if isinstance(mask, PackedSequences) else None
    if padding is None:
        cached = cache.update(key, value, layer_idx)
        return cached, cached
    padded_key, padded_value = (padding.unpack(x.transpose(1, 2)).transpose(1, 2) for x in (key, value))
    return cache.update(padded_key, padded_value, layer_idx), (key, value)
