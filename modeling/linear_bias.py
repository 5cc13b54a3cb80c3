"""Attention with linear biases: the farther a key is from its query, the lower their score.

Each head has a slope of its own, and a pair at distance d has -slope * d added to its score (Press, Smith and
Lewis, 2022, section 3: ALiBi). Nothing is learned, so a distance that no training text had is no special
case. The paper defines the bias for decoders. Encoders have the symmetric form, -slope * |i - j|, of which a
decoder sees one side: the bias is the same in both directions. An encoder knows therefore how far away a
token is, but not on which side: a text read backwards has the same states.

Shapes: H query heads.
"""

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from .relative_bias import DistanceBias


class LinearBias(DistanceBias):
    """Minus a slope for each head, times the distance. It has no parameters."""

    is_by_head_number = True

    def __init__(self, config: PreTrainedConfig, *, is_causal: bool):
        super().__init__(config, is_causal=is_causal)
        self.num_heads = config.num_attention_heads

    def of_distances(self, distances: Tensor) -> Tensor:
        """Compute the bias in float32.

        transformers' BLOOM adds a constant for each query, which softmax ignores.
        """
        return -slopes(self.num_heads, distances.device)[:, None] * distances.abs()


def slopes(num_heads: int, device: torch.device) -> Tensor:
    """Give the slope of each head, (H,), in float32.

    Of n heads, n a power of 2, they are 2^(-8 k / n) for k = 1, 2, ..., n. Other numbers of heads follow the
    authors' code: first the slopes of the next lower power of 2, then every second one, from the first on, of
    twice that power.

    Example:
        >>> slopes(4, torch.device("cpu")).tolist()
        [0.25, 0.0625, 0.015625, 0.00390625]
        >>> slopes(6, torch.device("cpu"))[4:].tolist()
        [0.5, 0.125]
    """
    power = 1 << (num_heads.bit_length() - 1)
    own = torch.arange(1, power + 1, device=device)
    between = torch.arange(num_heads - power, device=device) + 0.5
    return torch.exp2(-8 / power * torch.cat((own, between)))
