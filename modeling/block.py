"""One transformer layer, shared by the whole family: its sub-layers, and three ways to add up what they say.

Shapes: B batch, T positions, C model width.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import CrossAttention, SelfAttention, select_positions
from .configuration_tercet import TercetConfig
from .dropout import Dropout
from .feed_forward import FEED_FORWARD
from .normalization import build_norm
from .packing import Mask
from .positions import Rotation

Sublayer = tuple[nn.Module, Callable[[Tensor], Tensor]]
"""A norm, and what is made of the stream (B, T, C) before it or behind it."""


class Block(GradientCheckpointingLayer, ABC):
    """Read from the sequence, read from the encoder (if there is one), think."""

    def __init__(self, config: TercetConfig, layer_idx: int, *, is_causal: bool, reads_encoder: bool = False):
        super().__init__()
        self.layer_type = config.types_of_layers[layer_idx]
        has_norm = layer_idx > 0 or config.first_norm
        self.self_attention_norm = build_norm(config) if has_norm else nn.Identity()
        self.self_attention = SelfAttention(config, layer_idx, is_causal=is_causal)
        self.cross_attention_norm = build_norm(config) if reads_encoder else nn.Identity()
        self.cross_attention = CrossAttention(config, layer_idx) if reads_encoder else None
        self.feed_forward_norm = build_norm(config)
        self.feed_forward = FEED_FORWARD[config.feed_forward_type](config)
        self.dropout = Dropout(config.dropout)

    @abstractmethod
    def add(self, x: Tensor, sublayers: Sequence[Sublayer]) -> Tensor:
        """Add what the sub-layers make of `x` (B, T, C) to it, with their norms in place."""

    def seen(self, x: Tensor) -> Tensor:
        """Give what self-attention sees of the stream (B, T, C)."""
        return self.self_attention_norm(x)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Mask,
        rotation: Rotation | None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Mask = None,
        packed_bias: Tensor | None = None,
        past_key_values: Cache | None = None,
        output_positions: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Transform the residual stream (B, T, C); only at `output_positions` (n,), if given: (1, n, C).

        Keys and values come from all positions, but nothing after attention is computed for the others.
        `packed_bias` is added to the scores of packed sequences; it is an argument of its own, so that
        checkpointing sees its gradient.
        """
        bias = {} if packed_bias is None else {"packed_bias": packed_bias}

        def read_sequence(x: Tensor) -> Tensor:
            everything = x if output_positions is None else self.seen(hidden_states)
            return self.self_attention(
                everything,
                attention_mask,
                rotation,
                past_key_values,
                output_positions=output_positions,
                **bias,
                **kwargs,
            )[0]

        sublayers: list[Sublayer] = [(self.self_attention_norm, read_sequence)]
        if (cross_attention := self.cross_attention) is not None:

            def read_encoder(x: Tensor) -> Tensor:
                return cross_attention(
                    x, encoder_hidden_states, encoder_attention_mask, past_key_values, **kwargs
                )[0]

            sublayers.append((self.cross_attention_norm, read_encoder))
        sublayers.append((self.feed_forward_norm, self.feed_forward))
        return self.add(select_positions(hidden_states, output_positions), sublayers)


class PreNormBlock(Block):
    """x + f(norm(x)): gradients pass through the sums untouched (Xiong et al., 2020)."""

    def add(self, x: Tensor, sublayers: Sequence[Sublayer]) -> Tensor:
        """Normalize what each sub-layer sees."""
        for norm, sublayer in sublayers:
            x = x + self.dropout(sublayer(norm(x)))
        return x


class PostNormBlock(Block):
    """norm(x + f(x)), as in Vaswani et al., 2017, section 3.1, and BERT."""

    def seen(self, x: Tensor) -> Tensor:
        """Give the stream as it is, whose norms lie behind the sub-layers."""
        return x

    def add(self, x: Tensor, sublayers: Sequence[Sublayer]) -> Tensor:
        """Normalize each sum."""
        for norm, sublayer in sublayers:
            x = norm(x + self.dropout(sublayer(x)))
        return x


class ParallelBlock(Block):
    """x + f(norm(x)) + g(norm(x)), as in GPT-NeoX (Black et al., 2022, section 2.1.2)."""

    def add(self, x: Tensor, sublayers: Sequence[Sublayer]) -> Tensor:
        """Let all sub-layers see the same state, each through its norm."""
        return sum((self.dropout(sublayer(norm(x))) for norm, sublayer in sublayers), start=x)


BLOCKS: dict[str, type[Block]] = {"pre": PreNormBlock, "post": PostNormBlock, "parallel": ParallelBlock}
