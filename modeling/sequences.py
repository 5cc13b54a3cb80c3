"""Where the sequences of a batch lie: found once, where a model is called, and handed to all that ask.

told by                                            layout
cumulative lengths (S+1,), of a single row         a packed stream: sequences follow each other
a mask of tokens, (B, T), 0 at pads                rows of one sequence each, pads wherever they stand
positions that do not go on by one, without mask   of a single row, a packed stream; else rows of several
nothing, or a mask of pairs                        rows of one sequence each, without pads

Shapes: B batch, T positions, N tokens of a packed stream, S sequences, C model width. Rows of a padded batch
count as one sequence each (S = B); a packed stream (1, N) holds all of them.
"""

from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from .attention.masks import refuse_mask_of_packed, require_mask
from .attention.packing import (
    Padding,
    cumulative,
    is_padding_mask,
    positions_in,
    positions_of,
    sequence_ids,
)
from .compatibility import is_tracing

TokenIndices = tuple[Tensor, Tensor]
"""Row and column of one token of each sequence, (S,) and (S,), as an index into (B, T, ...)."""


class PaddedRows:
    """A row for each sequence, with pads wherever they stand; columns are counted with the pads.

    Args:
        size: (B, T).
        device: Device of the tokens.
        mask: (B, past + T), 0 at pads; `past` tokens are in a cache. `None`: nothing tells of pads.
        is_begin: (B, T), true where sequences begin, if a row has several, or a mask of pairs.
    """

    def __init__(
        self,
        size: torch.Size,
        device: torch.device,
        mask: Tensor | None = None,
        is_begin: Tensor | None = None,
    ):
        self.size, self.device, self.mask, self.is_begin = size, device, mask, is_begin

    @property
    def parts(self) -> Tensor | None:
        """Number of the sequence of each token in its row, (B, T), from 1; `None`: a row is one sequence."""
        return None if self.is_begin is None else self.is_begin.cumsum(-1)

    @property
    def rows(self) -> Tensor:
        """Number of each row, (B,)."""
        return torch.arange(self.count, device=self.device)

    @property
    def is_own(self) -> Tensor:
        """True at the tokens of each sequence in the row that holds it, (S, T), or packed (S, N)."""
        if self.mask is None:
            return torch.ones(self.size, dtype=torch.bool, device=self.device)
        return self.mask[:, -self.size[1] :] != 0

    @property
    def is_first(self) -> Tensor:
        """True where no token of its sequence precedes, (B, T) or (1, T); no device waits."""
        is_one = self.mask is not None or self.is_begin is None
        return self.positions == 0 if is_one else cast(Tensor, self.is_begin)

    @property
    def is_pad(self) -> Tensor | None:
        """True at pads, (B, T); `None`: nothing tells of any."""
        return None if self.mask is None else self.mask[:, -self.size[1] :] == 0

    @property
    def sequence_ids(self) -> Tensor:
        """Number of the sequence of each token, (B, T), or packed (1, N); -1 at pads."""
        return torch.where(self.is_own, self.rows[:, None], -1)

    @property
    def positions(self) -> Tensor:
        """Tokens of its sequence before each one, those in a cache too, (B, T); (1, T) without a mask."""
        if self.mask is None:
            return torch.arange(self.size[1], device=self.device)[None]
        return positions_in(self.mask)[:, -self.size[1] :]

    @property
    def count(self) -> int:
        return self.size[0]

    @property
    def lengths(self) -> Tensor:
        """How many tokens each sequence has, (S,)."""
        return self.is_own.sum(-1)

    @property
    def first(self) -> TokenIndices:
        """Where the first token of each sequence is."""
        return self.rows, self.is_own.int().argmax(-1)

    @property
    def last(self) -> TokenIndices:
        """Where the last token of each sequence is."""
        return self.rows, self.size[1] - 1 - self.is_own.flip(-1).int().argmax(-1)

    @property
    def origins(self) -> Tensor:
        """Column from which the user counts the positions in each sequence, (S,)."""
        return torch.zeros_like(self.rows)

    def total(self, states: Tensor) -> Tensor:
        """Sum of the vectors (B, T, C) of each sequence, (S, C)."""
        return (states * self.is_own[..., None]).sum(1)

    def with_pads(self, tokens: Tensor | None, pad_token_id: int | None) -> "PaddedRows":
        """Take tokens (B, T) of an id for pads, if nothing else tells of pads and there is such an id."""
        if self.mask is not None or tokens is None or pad_token_id is None:
            return self
        return PaddedRows(self.size, self.device, tokens != pad_token_id)

    def packed(self) -> "tuple[PackedStream, Padding | None]":
        """Return the same sequences in a stream, and the way there; `None`: they lie in it."""
        padding = Padding(self.is_own)
        return PackedStream(torch.Size((1, len(padding.indices))), padding.cu_seq_lens), padding


class PackedStream:
    """One row of N tokens for all sequences, of which it tells what `PaddedRows` does.

    Args:
        size: (1, N).
        cu_seq_lens: Cumulative lengths (S+1,), from 0 to N.
        max_length: The longest of them, if it is known.
    """

    is_pad = None

    def __init__(self, size: torch.Size, cu_seq_lens: Tensor, max_length: int | None = None):
        self.size, self.cu_seq_lens, self.max_length = size, cu_seq_lens, max_length

    @property
    def begins(self) -> Tensor:
        return self.cu_seq_lens[:-1].long()

    @property
    def ends(self) -> Tensor:
        return self.cu_seq_lens[1:].long()

    @property
    def is_own(self) -> Tensor:
        stream = torch.arange(self.size[1], device=self.cu_seq_lens.device)
        return (self.begins[:, None] <= stream) & (stream < self.ends[:, None])

    @property
    def is_first(self) -> Tensor:
        return self.positions == 0

    @property
    def sequence_ids(self) -> Tensor:
        return sequence_ids(self.cu_seq_lens, self.size[1])

    @property
    def positions(self) -> Tensor:
        return positions_of(self.cu_seq_lens, self.size[1])

    @property
    def count(self) -> int:
        return self.cu_seq_lens.shape[0] - 1

    @property
    def lengths(self) -> Tensor:
        return self.cu_seq_lens.diff()

    @property
    def first(self) -> TokenIndices:
        """Behind a bound; an empty sequence behind all others has the last token."""
        begins = self.begins
        return torch.zeros_like(begins), begins.clamp(max=self.size[1] - 1)

    @property
    def last(self) -> TokenIndices:
        ends = self.ends
        return torch.zeros_like(ends), ends - 1

    @property
    def origins(self) -> Tensor:
        return self.begins

    def total(self, states: Tensor) -> Tensor:
        return self.is_own.to(states.dtype) @ states[0]

    def with_pads(self, tokens: Tensor | None, pad_token_id: int | None) -> "PackedStream":
        return self

    def packed(self) -> "tuple[PackedStream, Padding | None]":
        return self, None


Sequences = PaddedRows | PackedStream
"""Where the sequences of a batch lie."""


def require_tokens(input_ids: Tensor | None, inputs_embeds: Tensor | None, prefix: str = "") -> Tensor:
    """Return whichever of ids (B, T) and vectors (B, T, C) is given; `prefix` begins their names."""
    tokens = input_ids if inputs_embeds is None else inputs_embeds
    if tokens is None or (input_ids is not None and inputs_embeds is not None):
        given = "both are missing" if tokens is None else "both are given"
        raise ValueError(f"pass either {prefix}input_ids or {prefix}inputs_embeds: {given}")
    if not is_tracing() and tokens.numel() == 0:
        raise ValueError(
            f"the input has the size {(*tokens.shape,)}: give one row or more, of one token or more"
        )
    return tokens


def find_sequences(
    tokens: Tensor,
    attention_mask: object = None,
    position_ids: Tensor | None = None,
    cu_seq_lens: Tensor | None = None,
    max_length: int | None = None,
    *,
    num_heads: int | None = None,
    past_length: int | Tensor | None = None,
    names: tuple[str, str] = ("attention_mask", "cu_seq_lens_q"),
) -> Sequences:
    """Find the sequences of a batch by the arguments of a model.

    Args:
        tokens: Ids (B, T) or vectors (B, T, C), for their size and device.
        attention_mask: (B, past + T), 0 at pads; or of pairs, which tells of none: see `attention/masks.py`.
        position_ids: (B, T).
        cu_seq_lens: Cumulative lengths (S+1,) of sequences packed by the user.
        max_length: The longest of them, if it is known.
        num_heads: Query heads; `None`: there is no attention, and masks are of tokens alone.
        past_length: Tokens in a cache, behind which positions begin no sequence; `None` without a cache.
        names: What the caller calls mask and cumulative lengths.
    """
    size, (mask_name, bounds_name) = tokens.shape[:2], names
    num_keys = None if isinstance(past_length, Tensor) else size[1] + (past_length or 0)
    require_mask(attention_mask, size, num_keys, num_heads, mask_name)
    if cu_seq_lens is not None:
        refuse_mask_of_packed(attention_mask)
        require_bounds(bounds_name, cu_seq_lens, size)
        return PackedStream(size, cu_seq_lens, max_length)
    if is_padding_mask(attention_mask):
        return PaddedRows(size, tokens.device, attention_mask)
    if position_ids is None:
        return PaddedRows(size, tokens.device)
    if attention_mask is not None:
        return PaddedRows(size, tokens.device, is_begin=position_ids == 0)
    if past_length is not None:
        return PaddedRows(size, tokens.device)
    is_begin = restarts(position_ids).expand(size)
    if not (is_tracing() or tokens.is_meta):  # where no value can be looked at
        if not is_begin[:, 1:].any():
            return PaddedRows(size, tokens.device)
        if size[0] == 1:
            return PackedStream(size, bounds_of(position_ids))
    return PaddedRows(size, tokens.device, is_begin=is_begin)


def restarts(position_ids: Tensor) -> Tensor:
    """Return where positions (B, T) do not simply go on, so that another sequence begins."""
    return F.pad(position_ids.diff(dim=-1) != 1, (1, 0), value=True)


def bounds_of(position_ids: Tensor) -> Tensor:
    """Cumulative lengths (S+1,) of the sequences in one row of restarting positions (1, N)."""
    numbers = restarts(position_ids)[0].cumsum(0)
    return cumulative(torch.unique_consecutive(numbers, return_counts=True)[1])


def require_bounds(name: str, cu_seq_lens: Tensor, size: torch.Size) -> None:
    """Raise a `ValueError` unless cumulative lengths (S+1,) cut a single row of tokens, of `size` (1, N).

    Values are checked on the CPU alone, where no device has to be waited for.
    """
    if is_tracing():
        return
    if size[0] != 1:
        raise ValueError(
            f"{name} is given with {size[0]} rows: packed input has one row, so flatten (B, T) to (1, B * "
            f"T) and continue the count from row to row, or pass an attention_mask instead"
        )
    is_sound = not cu_seq_lens.is_cpu or (
        cu_seq_lens[0] == 0 and cu_seq_lens[-1] == size[1] and bool((cu_seq_lens.diff() >= 0).all())
    )
    if not is_sound:
        raise ValueError(
            f"{name} is {cu_seq_lens.tolist()} for {size[1]} tokens: give cumulative lengths, from 0 "
            "up to the number of tokens"
        )


def require_pairs(cu_seq_lens: Tensor | None, size: torch.Size, num_targets: int | None) -> None:
    """Raise a `ValueError` unless packed sources of `size` (1, M) are those of packed targets, one each.

    `num_targets` is 0 if a mask tells targets apart; `None`: they are not packed.
    """
    if num_targets is None and cu_seq_lens is None:
        return
    if num_targets is None:
        raise ValueError("the sources are packed, but cu_seq_lens_q is missing: pass that of the targets")
    if cu_seq_lens is None:
        raise ValueError(
            "the targets are packed, but cu_seq_lens_k is missing: pass the cumulative lengths of the sources"
        )
    require_bounds("cu_seq_lens_k", cu_seq_lens, size)
    if num_targets not in (0, len(cu_seq_lens) - 1):
        raise ValueError(
            f"cu_seq_lens_k bounds {len(cu_seq_lens) - 1} sources, but cu_seq_lens_q {num_targets} targets: "
            "give each target its source, in the same order"
        )
