"""Scaled dot-product attention as defined: the reference of every kernel, and the fastest on short sequences.

Shapes: B batch, T queries, S keys, H query heads, G key-value heads, D head width.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ..layers.dropout import drop


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
    key is repeated. It is torch's fused kernel in float32 at least: in bfloat16 that takes three times as
    long as changing the type of all keys and values before.
    """
    dtype = torch.promote_types(query.dtype, torch.float32)
    if attention_mask is not None and attention_mask.dtype != torch.bool:
        attention_mask = attention_mask.to(dtype)
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
