"""Attention by scores that are no dot products: kernels that let the layer's score compare all pairs.

The scores of all pairs are in memory, as with the definition of dot products, but what they come from is not:
see `PairScore.compare` and `PairScore.define`.

Shapes: B batch, T queries, S keys, H query heads, G key-value heads, D head width; b, t, s of a group.
"""

from typing import Any, cast

from torch import Tensor, nn

from .dot_product import weigh
from .packed import Group
from .scores import PairScore


def pair_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """The definition: the softmax of the scores by their definition weighs the values.

    Takes and returns what `scaled_dot_product` does.
    """
    scores = cast(PairScore, module.score).define(query, key)
    return weigh(scores, value, attention_mask, dropout)


def blocked_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Compute the same in little memory."""
    scores = cast(PairScore, module.score).compare(query, key)
    return weigh(scores, value, attention_mask, dropout)


def blocked_group(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    group: Group,
    bias: Tensor | None,
    *,
    module: nn.Module,
    dropout: float,
    **_: Any,
) -> Tensor:
    """Let (b, t, H, D) attend to (b, s, G, D), with a bias (1, H, t, s)."""
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    scores = cast(PairScore, module.score).compare(query, key)
    return weigh(scores, value, group.added(bias, scores), dropout)[0]
