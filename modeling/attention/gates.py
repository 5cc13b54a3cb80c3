"""Gates of attention: each position decides how much of what its heads have read is passed on.

Qiu et al., 2025, "Gated attention for large language models", section 2.2: the weighted values Y of the heads
become Y * sigmoid(X W), where X is what the sub-layer reads. This happens after the softmax and before the
last projection (their position G1), so every kernel serves every gate, and caches hold the same. In
cross-attention X is the decoder's state. W is drawn as any other weight: gates are half open at first.

Shapes: B batch, T positions, C model width, H query heads, D head width, n output positions.
"""

from abc import ABC, abstractmethod

from torch import Tensor, nn
from transformers import PreTrainedConfig

from .packing import select_positions


class AttentionGate(nn.Module, ABC):
    """How much of the weighted values is passed on. Abstract.

    Args:
        config: A `TercetConfig`.
    """

    def __init__(self, config: PreTrainedConfig):
        super().__init__()

    @abstractmethod
    def forward(self, values: Tensor, hidden_states: Tensor, output_positions: Tensor | None) -> Tensor:
        """Scale weighted values (B, T, H*D) by what the sub-layer reads, `hidden_states` (B, T, C).

        With `output_positions` (n,) of the flattened batch, the values are those of these alone: (1, n, H*D).
        """


class NoGate(AttentionGate):
    """Everything is passed on (Vaswani et al., 2017)."""

    def forward(self, values: Tensor, hidden_states: Tensor, output_positions: Tensor | None) -> Tensor:
        """Leave the values as they are."""
        return values


class HeadwiseGate(AttentionGate):
    """One gate for each head: few parameters, C * H a layer."""

    prepacks = True

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.g_proj = nn.Linear(config.hidden_size, config.num_attention_heads, bias=config.attention_bias)

    def forward(self, values: Tensor, hidden_states: Tensor, output_positions: Tensor | None) -> Tensor:
        """Scale all channels of a head alike."""
        gate = self.g_proj(select_positions(hidden_states, output_positions)).sigmoid()  # (B, T, H)
        return (values.unflatten(-1, (gate.shape[-1], -1)) * gate[..., None]).flatten(start_dim=-2)


class ElementwiseGate(AttentionGate):
    """One gate for each channel of each head, as in Qwen3-Next."""

    prepacks = True

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        width = config.num_attention_heads * config.head_dim
        self.g_proj = nn.Linear(config.hidden_size, width, bias=config.attention_bias)

    def forward(self, values: Tensor, hidden_states: Tensor, output_positions: Tensor | None) -> Tensor:
        """Scale each channel by itself."""
        return values * self.g_proj(select_positions(hidden_states, output_positions)).sigmoid()


GATES: dict[str, type[AttentionGate]] = {
    "none": NoGate,
    "headwise": HeadwiseGate,
    "elementwise": ElementwiseGate,
}
"""By the field `attention_gate` of a configuration."""
