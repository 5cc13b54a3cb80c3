"""Attention scores: how a query and a key are compared.

A score is a small class, chosen by name where the model is built. It changes queries and keys such that their
dot product, times `scaling`, is the score, so that every kernel serves every score. Positions may turn
queries and keys before that (`positions.py`), or add a bias to the score (`relative_bias.py`).

Shapes: B batch, T queries, S keys, H query heads, G key-value heads, D head width.
"""

from abc import ABC, abstractmethod

from torch import Tensor, nn
from transformers import PreTrainedConfig


class AttentionScore(nn.Module, ABC):
    """How a query and a key are compared. Abstract.

    Args:
        config: A `TercetConfig`.
    """

    scaling: float
    """Factor of the dot products."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()

    @abstractmethod
    def forward(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Change queries (B, H, T, D) and keys (B, G, S, D), cached ones included, of the same sizes."""


class ScaledDotProduct(AttentionScore):
    """Dot products, over the square root of D (Vaswani et al., 2017, section 3.2.1)."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.scaling = config.head_dim**-0.5

    def forward(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Leave both as they are."""
        return query, key


SCORES: dict[str, type[AttentionScore]] = {"scaled_dot_product": ScaledDotProduct}
"""By the field `attention_score` of a configuration."""
