"""Additive scores v^T tanh(q + k) of all pairs: their definition, and a computation in little memory.

The hidden layer has D channels for each pair, D times as many numbers as there are scores. It is computed for
a few queries at a time, and again in the backward pass, so that scores are all that remains of it.

Shapes: B batch, T queries, S keys, H heads, D channels; t queries of a block.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK_BYTES = {"cpu": 2**20}
"""Size of a block's hidden layer, at most, unless it has one query only; by type of device."""

LARGE_BLOCK_BYTES = 2**26
"""The same on other devices."""


def additive_scores(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """Score (B, H, T, D) and (B, H, S, D) by the vectors (H, D): (B, H, T, S). The definition."""
    hidden = hidden_layer(query, key)
    return (hidden * vector[:, None, None].to(hidden.dtype)).sum(-1)


def hidden_layer(query: Tensor, key: Tensor) -> Tensor:
    """Compute tanh(q + k) of all pairs: (B, H, T, S, D)."""
    return (query[..., None, :] + key[..., None, :, :]).tanh()


def blocked_additive_scores(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """Compute the same in blocks of queries; the hidden layer of a block is all that is in memory of it."""
    return _BlockedScores.apply(query, key, vector)


class _BlockedScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, vector)
        weights = vector.to(query.dtype)[..., None]  # (H, D, 1)
        scores = query.new_empty(*query.shape[:-1], key.shape[-2])
        with torch.autocast(query.device.type, enabled=False):
            for block in blocks(query, key):
                hidden = hidden_layer(query[:, :, block], key)
                products = hidden.flatten(2, 3) @ weights
                scores[:, :, block] = products.view(hidden.shape[:-1])
        return scores

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        query, key, vector = ctx.saved_tensors
        dtype = torch.promote_types(query.dtype, torch.float32)  # of what blocks add up to
        d_query, d_key = torch.empty_like(query), torch.zeros_like(key, dtype=dtype)
        d_vector = torch.zeros_like(vector, dtype=dtype)
        weights = vector[:, None].to(dtype)  # (H, 1, D)
        for block in blocks(query, key):
            hidden = hidden_layer(query[:, :, block], key)
            d_scores = gradient[:, :, block]
            d_vector += (d_scores.flatten(2)[..., None, :] @ hidden.flatten(2, 3)).sum((0, 2))
            slopes = hidden.square_().neg_().add_(1).mul_(d_scores[..., None])  # the vector follows the sums
            d_query[:, :, block] = (slopes.sum(3, dtype=dtype) * weights).to(query.dtype)
            d_key += slopes.sum(2, dtype=dtype)
        return d_query, (d_key * weights).to(key.dtype), d_vector.to(vector.dtype)


def blocks(query: Tensor, key: Tensor) -> Iterator[slice]:
    """Cut the queries into blocks, each of which has a hidden layer of a limited size, or a single query."""
    limit = BLOCK_BYTES.get(query.device.type, LARGE_BLOCK_BYTES)
    size = max(1, limit // max(1, key.numel() * key.element_size()))
    return (slice(start, start + size) for start in range(0, query.shape[-2], size))
