"""Attention over short sequences on a CPU: the definition, with its gradients written out.

Two batched products with a softmax between them beat fused kernels there as long as the weights are small,
and fused kernels for CPUs know no dropout at all. What autograd would make of the definition converts the
weights between number formats several times and keeps each version of them; here they are kept once.

Shapes: b sequences, t queries, s keys, H query heads, G key-value heads, D head width.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..layers.dropout import draw_kept, masked

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
    heads_first = (x.transpose(1, 2).contiguous() for x in (query, key, value))
    return _ShortAttention.apply(*heads_first, bias, scaling, dropout).transpose(1, 2)


class Attended(NamedTuple):
    """What the definition computes, and what its gradients are computed from; all are (b, H, ...)."""

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
        weights = (scores if bias is None else scores.add_(bias)).softmax(dim=-1)
        is_kept, factor = draw_kept(weights, dropout) if dropout else (None, 1.0)
        value = value * factor if dropout else value  # smaller than the weights, so scaled instead
        return cls(without_dropped(weights, is_kept) @ value, query, key, value, weights, is_kept, factor)

    def gradients(self, gradient: Tensor, scaling: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return those of queries, keys, values and scores."""
        gradient = gradient.contiguous()
        d_value = without_dropped(self.weights, self.is_kept).mT @ gradient
        d_weights = without_dropped(gradient @ self.value.mT, self.is_kept)
        d_scores = torch.ops.aten._softmax_backward_data(d_weights, self.weights, -1, self.weights.dtype)
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
        with torch.autocast("cpu", enabled=False):
            attended = Attended.compute(query, key, value, bias, scaling, dropout)
        ctx.scaling, ctx.factor = scaling, attended.factor
        ctx.bias_shape = None if bias is None else bias.shape
        ctx.save_for_backward(*attended[1:-1])
        return attended.values

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        query, key, value, weights, is_kept = ctx.saved_tensors
        attended = Attended(gradient, query, key, value, weights, is_kept, ctx.factor)
        *gradients, d_scores = attended.gradients(gradient, ctx.scaling)
        d_bias = d_scores.sum_to_size(ctx.bias_shape) if ctx.needs_input_grad[3] else None
        return *gradients, d_bias, None, None


def without_dropped(weights: Tensor, is_kept: Tensor | None) -> Tensor:
    """Set the dropped weights (b, H, t, s) to zero, if any are."""
    return weights if is_kept is None else masked(weights, is_kept)
