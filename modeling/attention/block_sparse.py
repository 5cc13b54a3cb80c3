"""Attention of a sparse pattern on a CPU: blocks of queries with the blocks of keys that they see.

Queries and keys are cut into blocks. The key blocks of some query blocks are gathered, so that dense batched
products compute their scores, and what the pattern forbids within them is masked. Gradients are written out:
the backward pass computes the scores of the same blocks again, so that memory grows with the length of a
sequence, not with its square.

Shapes: b sequences, t tokens, H query heads, G key-value heads, D head width; n blocks of s tokens, r of them
in rows that have m key blocks each.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .abstract_pattern import AttentionPattern
from .short_sequences import SHORT

ROWS_BYTES = 2**21
"""Size of the scores that are computed at once, unless it is one block of queries that has more."""

LARGEST_SHARE = 0.5
"""Share of all pairs of blocks up to which this is faster than the fused kernel with a mask."""


class BlockRows(NamedTuple):
    """Some blocks of queries that have equally many blocks of keys.

    Args:
        queries: Their numbers, (r,).
        keys: The numbers of their key blocks, (r, m).
        allowed: Which pairs may attend, (r, s, m * s); `None`: all.
    """

    queries: Tensor
    keys: Tensor
    allowed: Tensor | None

    def split(self, size: int) -> Iterator["BlockRows"]:
        """Cut the rows into parts of `size` blocks of queries, at most."""
        for start in range(0, len(self.queries), size):
            part = slice(start, start + size)
            allowed = None if self.allowed is None else self.allowed[part]
            yield BlockRows(self.queries[part], self.keys[part], allowed)


@lru_cache(maxsize=64)
def is_sparse(pattern: AttentionPattern, length: int) -> bool:
    """Return whether blocks alone say what a pattern allows, and it leaves out enough in such a length."""
    says_more = pattern.adds_to_scores or pattern.depends_on_length
    if pattern.block_size is None or says_more or length <= SHORT:
        return False
    num_blocks = -(-length // pattern.block_size)
    return sum(map(len, pattern.key_blocks(num_blocks))) <= LARGEST_SHARE * num_blocks**2


@lru_cache(maxsize=8)
def plan_rows(pattern: AttentionPattern, num_blocks: int) -> list[BlockRows]:
    """Group the blocks of queries of a sequence by the number of key blocks that they see."""
    size = pattern.block_size
    assert size is not None
    by_count: dict[int, list[tuple[int, list[int]]]] = {}
    for block, seen in enumerate(pattern.key_blocks(num_blocks)):
        by_count.setdefault(len(seen), []).append((block, seen))
    offsets, rows = torch.arange(size), []
    for group in by_count.values():
        queries, keys = (torch.tensor(numbers) for numbers in zip(*group, strict=True))
        query_positions = queries[:, None] * size + offsets
        key_positions = (keys[..., None] * size + offsets).flatten(1)
        allowed = pattern.allows(query_positions[..., None], key_positions[:, None])
        rows.append(BlockRows(queries, keys, None if allowed.all() else allowed))
    return rows


def block_sparse_attention(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, pattern: AttentionPattern, scaling: float
) -> Tensor:
    """Let `query` (b, t, H, D) attend to `key` and `value` (b, t, G, D) by a pattern that has blocks.

    `lengths` (b,) are those of the sequences, behind which pads stand. Equals `scaled_dot_product` in value
    and gradients at all tokens; returns weighted values (b, t, H, D).
    """
    size, length, num_heads = pattern.block_size, query.shape[1], key.shape[2]
    assert size is not None
    pads = (0, 0, 0, 0, 0, -length % size)
    blocks = (
        F.pad(x, pads).unflatten(1, (-1, size)).unflatten(3, (num_heads, -1)) for x in (query, key, value)
    )  # (b, n, s, G, H/G, D)
    blocks = (x.permute(0, 3, 1, 4, 2, 5).flatten(3, 4).contiguous() for x in blocks)  # (b, G, n, H/G * s, D)
    attended = _BlockSparseAttention.apply(*blocks, lengths, pattern, scaling)
    attended = attended.unflatten(3, (-1, size)).permute(0, 2, 4, 1, 3, 5)
    return attended.flatten(1, 2)[:, :length].flatten(2, 3)


class _BlockSparseAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        lengths: Tensor,
        pattern: AttentionPattern,
        scaling: float,
    ) -> Tensor:
        attended = torch.empty_like(query)
        with torch.autocast("cpu", enabled=False):
            query = query * scaling
            for rows in chunks(query, pattern):
                weights = weights_of(query, gather(key, rows.keys), rows, lengths, pattern)
                attended[:, :, rows.queries] = weights @ gather(value, rows.keys)
        ctx.save_for_backward(query, key, value, lengths)
        ctx.pattern, ctx.scaling = pattern, scaling
        return attended

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        query, key, value, lengths = ctx.saved_tensors
        dtype = torch.promote_types(query.dtype, torch.float32)  # of what chunks add up to
        d_query = torch.empty_like(query)
        d_key, d_value = (torch.zeros_like(x, dtype=dtype) for x in (key, value))
        for rows in chunks(query, ctx.pattern):
            keys = gather(key, rows.keys)
            weights = weights_of(query, keys, rows, lengths, ctx.pattern)
            d_attended = gradient[:, :, rows.queries]
            scatter(d_value, rows.keys, weights.mT @ d_attended)
            d_weights = d_attended @ gather(value, rows.keys).mT
            d_scores = torch.ops.aten._softmax_backward_data(d_weights, weights, -1, weights.dtype)
            d_query[:, :, rows.queries] = (d_scores @ keys).mul_(ctx.scaling)
            scatter(d_key, rows.keys, d_scores.mT @ query[:, :, rows.queries])
        return d_query, d_key.to(key.dtype), d_value.to(value.dtype), None, None, None


def chunks(query: Tensor, pattern: AttentionPattern) -> Iterator[BlockRows]:
    """Cut the rows for queries (b, G, n, H/G * s, D) into chunks whose scores are of a limited size."""
    num_sequences, num_heads, num_blocks, num_queries, _ = query.shape
    assert pattern.block_size is not None
    for rows in plan_rows(pattern, num_blocks):
        num_keys = rows.keys.shape[1] * pattern.block_size
        row_bytes = num_sequences * num_heads * num_queries * num_keys * query.element_size()
        yield from rows.split(max(1, ROWS_BYTES // row_bytes))


def weights_of(
    query: Tensor, keys: Tensor, rows: BlockRows, lengths: Tensor, pattern: AttentionPattern
) -> Tensor:
    """Return the weights (b, G, r, H/G * s, m * s) of rows that have keys (b, G, r, m * s, D)."""
    scores = query[:, :, rows.queries] @ keys.mT
    size, lowest = keys.shape[3] // rows.keys.shape[1], torch.finfo(scores.dtype).min
    by_head = scores.unflatten(3, (-1, size))  # (b, G, r, H/G, s, m * s)
    if rows.allowed is not None:
        by_head.masked_fill_(~rows.allowed[:, None], lowest)
    # Pads stand behind all tokens, where causal queries do not look.
    if not pattern.is_causal and (int(rows.keys.max()) + 1) * size > int(lengths.min()):
        positions = (rows.keys[..., None] * size + torch.arange(size)).flatten(1)
        is_pad = positions >= lengths[:, None, None]  # (b, r, m * s)
        by_head.masked_fill_(is_pad[:, None, :, None, None], lowest)
    return scores.softmax(-1)


def gather(blocks: Tensor, numbers: Tensor) -> Tensor:
    """Take the blocks (b, G, n, s, D) of the numbers (r, m) in a row each: (b, G, r, m * s, D)."""
    return blocks.index_select(2, numbers.flatten()).unflatten(2, numbers.shape).flatten(3, 4)


def scatter(total: Tensor, numbers: Tensor, rows: Tensor) -> None:
    """Add rows (b, G, r, m * s, D) to the blocks (b, G, n, s, D) of the numbers (r, m)."""
    blocks = rows.unflatten(3, (numbers.shape[1], -1)).flatten(2, 3)
    total.index_add_(2, numbers.flatten(), blocks.to(total.dtype))
