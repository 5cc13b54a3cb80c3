"""The feed-forward network: what a position computes on its own.

Shapes: B batch, T positions, C model width, F width inside.
"""

from torch import Tensor, nn
from transformers.activations import ACT2FN

from ..configuration_tercet import TercetConfig
from .dropout import Dropout
from .linear import project, residual_linear


def build_activation(name: str) -> nn.Module:
    """Build an activation by its name in transformers.

    `gelu_new` of GPT-2 and `gelu_pytorch_tanh` are one function (Hendrycks and Gimpel, 2016, section 2): the
    first spells it in eight operations, the second is one of torch's.
    """
    return ACT2FN["gelu_pytorch_tanh" if name == "gelu_new" else name]


class PlainFeedForward(nn.Module):
    """W_down act(W_up x), of Vaswani et al., 2017, section 3.3: (B, T, C) -> (B, T, F) -> (B, T, C)."""

    prepacks = True
    activated = ("up_proj", "act_fn")  # may be one product: see prepacked_weights

    def __init__(self, config: TercetConfig):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = residual_linear(config, config.intermediate_size, bias=config.mlp_bias)
        self.act_fn = build_activation(config.hidden_act)
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the same two-layer network to every position."""
        return self.down_proj(self.dropout(self.act_fn(self.up_proj(x))))


class GatedFeedForward(nn.Module):
    """W_down (act(W_gate x) * W_up x), of Shazeer, 2020, "GLU Variants Improve Transformer"."""

    prepacks = True

    def __init__(self, config: TercetConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = residual_linear(config, config.intermediate_size, bias=config.mlp_bias)
        self.act_fn = build_activation(config.hidden_act)
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the same gated network to every position."""
        gate, up = project(x, self.gate_proj, self.up_proj)
        return self.down_proj(self.dropout(self.act_fn(gate) * up))


FEED_FORWARD: dict[str, type[nn.Module]] = {"plain": PlainFeedForward, "gated": GatedFeedForward}
