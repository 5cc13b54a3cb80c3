"""Attention over short sequences on a CPU: the definition, with its gradients written out.

Two batched products with a softmax between them beat fused kernels there as long as the weights are small,
and fused kernels for CPUs know no dropout at all. What autograd would make of the definition converts the
weights between number formats several times and keeps each version of them; here they are kept once.

Shapes: b sequences, t queries, s keys, H query heads, G key-value heads, D head width.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .dropout import draw_kept, masked

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
            query = query * scaling
            scores = query @ key.mT  # (b, H, t, s)
            weights = (scores if bias is None else scores.add_(bias)).softmax(dim=-1)
            is_kept, ctx.factor = draw_kept(weights, dropout) if dropout else (None, 1.0)
            value = value * ctx.factor if dropout else value  # smaller than the weights, so scaled instead
            attended = without_dropped(weights, is_kept) @ value
        ctx.scaling = scaling
        ctx.bias_shape = None if bias is None else bias.shape
        ctx.save_for_backward(query, key, value, weights, is_kept)
        return attended

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        query, key, value, weights, is_kept = ctx.saved_tensors
        gradient = gradient.contiguous()
        d_value = without_dropped(weights, is_kept).mT @ gradient
        d_weights = without_dropped(gradient @ value.mT, is_kept)
        d_scores = torch.ops.aten._softmax_backward_data(d_weights, weights, -1, weights.dtype)
        return (
            (d_scores @ key).mul_(ctx.scaling),
            d_scores.mT @ query,
            d_value.mul_(ctx.factor),
            d_scores.sum_to_size(ctx.bias_shape) if ctx.needs_input_grad[3] else None,
            None,
            None,
        )


def without_dropped(weights: Tensor, is_kept: Tensor | None) -> Tensor:
    """Set the dropped weights (b, H, t, s) to zero, if any are."""
    return weights if is_kept is None else masked(weights, is_kept)
