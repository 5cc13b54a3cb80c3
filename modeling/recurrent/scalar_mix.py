"""One vector for each word from all layers: gamma * sum of s_j h_j (Peters et al., 2018, section 3.2).

The weights s are a softmax of numbers w, one for each layer, which a task learns together with the scale
gamma. At the beginning all layers count alike.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import initialization as init


class ScalarMix(nn.Module):
    """A learned mean of layers.

    Args:
        num_layers: How many there are, that of the words' own vectors included.
    """

    def __init__(self, num_layers: int):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(num_layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def draw(self) -> None:
        """Let all layers count alike, with a scale of 1."""
        init.zeros_(self.weights)
        init.ones_(self.gamma)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Mix the states of all layers, (..., C) each, to (..., C).

        Raises:
            ValueError: There are more or fewer layers than weights.
        """
        if len(layers) != len(self.weights):
            raise ValueError(f"{len(layers)} layers to mix, but {len(self.weights)} weights: give all layers")
        shares = (self.gamma * self.weights.softmax(0)).unbind()
        return torch.stack([share * layer for share, layer in zip(shares, layers, strict=True)]).sum(0)

    def squares(self) -> Tensor:
        """Sum the squares of w, a penalty that draws the mix towards the mean of all layers (section 3.3)."""
        return self.weights.square().sum()
