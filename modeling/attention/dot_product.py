"""Scaled dot-product attention: as defined, over short sequences on a CPU, and by blocks of a sparse pattern.

The definition is the reference of every kernel.

Over short sequences on a CPU, two batched products with a softmax between them beat fused kernels as long as
the weights are small, and fused kernels for CPUs know no dropout at all. What autograd would make of the
definition converts the weights between number formats several times and keeps each version of them; here they
are kept once.

For a sparse pattern on a CPU, queries and keys are cut into blocks. The key blocks of some query blocks are
gathered, so that dense batched products compute their scores, and what the pattern forbids within them is
masked. Gradients are written out: the backward pass computes the scores of the same blocks again, so that
memory grows with the length of a sequence, not with its square.

Shapes: B batch, T queries, S keys, H query heads, G key-value heads, D head width. Of a group: b sequences, t
queries, s keys. By blocks: n blocks of s tokens, r of them in rows that have m key blocks each.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ..compatibility import softmax_backward
from ..layers.position_wise import draw_kept, drop, masked
from .abstract_pattern import AttentionPattern


def scaled_dot_product(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """The definition: softmax(Q K^T / sqrt(D)) V, kept as the reference of faster kernels.

    `query` is (B, H, T, D), `key` and `value` (B, G, S, D). `attention_mask` broadcasts to (B, H, T, S) and
    is added to the scores: 0 keeps a pair, a large negative number drops it.

    Returns the weighted values (B, T, H, D), and the weights (B, H, T, S).
    """
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scores = query @ key.mT * scaling  # (B, H, T, S)
    return weigh(scores, value, attention_mask, dropout)


def weigh(scores: Tensor, value: Tensor, added: Tensor | None, dropout: float) -> tuple[Tensor, Tensor]:
    """Weigh values (B, G, S, D) by the softmax of scores (B, H, T, S), to which a mask or a bias is added.

    Returns the weighted values (B, T, H, D), and the weights (B, H, T, S).
    """
    value = value.repeat_interleave(scores.shape[1] // value.shape[1], dim=1)
    if added is not None:
        scores = scores + added
    weights = scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(value.dtype)
    weights = drop(weights, dropout)
    return (weights @ value).transpose(1, 2), weights


def single_query_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    **_: Any,
) -> tuple[Tensor, None]:
    """Let the only query of each sequence (T = 1) attend, on a CPU, where no weight is dropped.

    The query heads that share a key-value head stand beside each other as if they were queries, so that no
    key is repeated. It is torch's fused kernel in float32 at least, as a mask is that adds to scores: in
    bfloat16 that takes three times as long as changing the type of all keys and values before.
    """
    dtype = torch.promote_types(query.dtype, torch.float32)
    if attention_mask is not None and attention_mask.shape[1] > 1:  # each head has its own
        attention_mask = attention_mask.view(len(attention_mask), key.shape[1], -1, key.shape[2])
    groups = query.view(len(query), key.shape[1], -1, query.shape[-1])  # (B, G, H/G, D)
    attended = nn.functional.scaled_dot_product_attention(
        groups.to(dtype), key.to(dtype), value.to(dtype), attention_mask, scale=scaling
    )
    return attended.to(query.dtype).view(len(query), 1, -1, query.shape[-1]), None


def additive(
    allowed: Tensor | None, is_causal: bool, length: int, like: Tensor, bias: Tensor | None = None
) -> Tensor | None:
    """Turn allowed keys into what is added to the scores: 0, or the lowest finite number of their type.

    Args:
        allowed: True where a query may attend to a key, broadcasting to (B, H, T, S); `None` allows all.
        is_causal: Forbid keys behind the query as well.
        length: T and S of a causal mask.
        like: A tensor of the scores' type and device.
        bias: What is added instead of 0, broadcasting to (B, H, T, S).
    """
    if is_causal:
        causal = torch.ones(length, length, dtype=torch.bool, device=like.device).tril()
        allowed = causal if allowed is None else allowed & causal
    added = like.new_zeros(()) if bias is None else bias.to(like.dtype)
    if allowed is None:
        return None if bias is None else added
    return added.where(allowed, torch.finfo(like.dtype).min)


SHORT = 256
"""Keys up to which this is faster than the fused kernel, where nothing is dropped."""


def short_attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, *, scaling: float, dropout: float
) -> Tensor:
    """Let `query` (b, t, H, D) attend to `key` and `value` (b, s, G, D).

    `bias`, broadcasting to (b, H, t, s), adds to the scores. Equals `scaled_dot_product` in value and
    gradients; returns weighted values (b, t, H, D).
    """
    if (groups := query.shape[2] // key.shape[2]) > 1:
        key, value = (x.repeat_interleave(groups, dim=2) for x in (key, value))
    return _ShortAttention.apply(query, key, value, bias, scaling, dropout)


class Attended(NamedTuple):
    """What the definition computes, and what its gradients are computed from; all are (b, H, ...).

    `values` are the result. `query`, which is scaled, and `key` give the `weights` (b, H, t, s) by which they
    are drawn from `value`. `is_kept` says which weights dropout leaves (`None`: all), and `factor` by how
    much `value` is enlarged for it.
    """

    values: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    weights: Tensor
    is_kept: Tensor | None
    factor: float

    @classmethod
    def compute(
        cls, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scaling: float, dropout: float
    ) -> "Attended":
        """Let queries (b, H, t, D) attend to keys and values (b, H, s, D)."""
        query = query * scaling
        scores = query @ key.mT  # (b, H, t, s)
        scores = scores if bias is None else scores.add_(bias)
        # Torch's kernel in bfloat16 takes four times as long where a row fills no register of the processor.
        weights = scores.softmax(-1, torch.promote_types(scores.dtype, torch.float32)).to(scores.dtype)
        is_kept, factor = draw_kept(weights, dropout) if dropout else (None, 1.0)
        value = value * factor if dropout else value  # smaller than the weights, so scaled instead
        return cls(masked(weights, is_kept) @ value, query, key, value, weights, is_kept, factor)

    def gradients(self, gradient: Tensor, scaling: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        gradient = gradient.contiguous()
        d_value = masked(self.weights, self.is_kept).mT @ gradient
        d_weights = masked(gradient @ self.value.mT, self.is_kept)
        d_scores = softmax_backward(d_weights, self.weights)
        d_query = (d_scores @ self.key).mul_(scaling)
        return d_query, d_scores.mT @ self.query, d_value.mul_(self.factor), d_scores


class _ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        scaling: float,
        dropout: float,
    ) -> Tensor:
        query, key, value = (x.transpose(1, 2).contiguous() for x in (query, key, value))
        with torch.autocast("cpu", enabled=False):
            attended = Attended.compute(query, key, value, bias, scaling, dropout)
        ctx.scaling, ctx.factor = scaling, attended.factor
        ctx.bias_shape = None if bias is None else bias.shape
        ctx.save_for_backward(*attended[1:-1])
        return attended.values.transpose(1, 2).contiguous()

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        query, key, value, weights, is_kept = ctx.saved_tensors
        attended = Attended(gradient, query, key, value, weights, is_kept, ctx.factor)
        *gradients, d_scores = attended.gradients(gradient.transpose(1, 2), ctx.scaling)
        d_bias = d_scores.sum_to_size(ctx.bias_shape) if ctx.needs_input_grad[3] else None
        return *(each.transpose(1, 2) for each in gradients), d_bias, None, None


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
        """Cut the rows into parts of at most `size` blocks of queries."""
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
            d_scores = softmax_backward(d_weights, weights)
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
