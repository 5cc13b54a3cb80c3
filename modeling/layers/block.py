"""One transformer layer, shared by the whole family, with its norms in one of three places.

Shapes: B batch, T positions, S source positions, C model width, n output positions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ..attention.kernels import FLASH, kernel_of_packed, reads_packed
from ..attention.multi_head import CrossAttention, SelfAttention
from ..attention.packing import Mask, select_positions
from ..configuration_tercet import TercetConfig
from .position_wise import FEED_FORWARD, Dropout, build_norm
from .positions import Rotation

SubLayer = Callable[[Tensor], Tensor]


class Block(GradientCheckpointingLayer, ABC):
    """Self-attention, cross-attention if there is an encoder, feed-forward. Abstract: see the three below."""

    is_compiled = False
    """Whether training computes it by a graph."""

    def __init__(
        self, config: TercetConfig, layer_idx: int, *, is_causal: bool, has_cross_attention: bool = False
    ):
        super().__init__()
        self.layer_type = config.types_of_layers[layer_idx]
        has_norm = layer_idx > 0 or config.first_norm
        self.self_attention_norm = build_norm(config) if has_norm else nn.Identity()
        self.self_attention = SelfAttention(config, layer_idx, is_causal=is_causal)
        self.cross_attention_norm = build_norm(config) if has_cross_attention else nn.Identity()
        self.cross_attention = CrossAttention(config, layer_idx) if has_cross_attention else None
        self.feed_forward_norm = build_norm(config)
        self.feed_forward = FEED_FORWARD[config.feed_forward_type](config)
        self.attention_dropout = Dropout(config.dropout_of("attention_out_dropout"))
        self.dropout = Dropout(config.dropout)

    @property
    def can_be_compiled(self) -> bool:
        """Whether compilers keep attention whole: by a kernel of packed sequences, or with a mask."""
        implementation = self.self_attention.config._attn_implementation
        return self.attention_kernel(is_traced=True) is not None or not reads_packed(implementation)

    @property
    def attention_name(self) -> str:
        """Name the kernel by which self-attention learns, under autocast if that is on, and what it lacks."""
        implementation = str(self.self_attention.config._attn_implementation)
        name = self.attention_kernel(is_traced=self.is_compiled) or implementation
        undropped = self.attention_kernel(is_traced=self.is_compiled, drops=False) or implementation
        if undropped != name:
            return f"{name} (attention_dropout=0 would have {undropped})"
        return f"{name} ({implementation})" if name == FLASH else name

    def attention_kernel(self, *, is_traced: bool, drops: bool = True) -> str | None:
        """Name the kernel of packed sequences by which self-attention learns; `None`: the table has none.

        Unless it `drops`, `attention_dropout` is left out.
        """
        attention, config = self.self_attention, self.self_attention.config
        weight, dropout = next(attention.parameters()), config.attention_dropout if drops else 0.0
        if (mesh := getattr(weight, "device_mesh", None)) is not None:  # pieces may rest elsewhere
            weight = torch.empty(0, dtype=weight.dtype, device=mesh.device_type)
        return kernel_of_packed(config, attention.pattern, weight, dropout=dropout, is_traced=is_traced)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Mask,
        rotation: Rotation | None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Mask = None,
        packed_bias: Tensor | None = None,
        *,
        output_positions: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Transform the residual stream (B, T, C).

        Args:
            hidden_states: The stream; packed sequences as (1, N, C).
            attention_mask: Which pairs self-attention allows.
            rotation: Angles by which queries and keys turn, if they do.
            encoder_hidden_states: What cross-attention attends to, (B, S, C).
            encoder_attention_mask: Which pairs cross-attention allows.
            packed_bias: What is added to the scores of packed sequences. It is positional as all tensors that
                may have a gradient, since checkpointing differentiates no others.
            output_positions: Given to the last layer alone: positions (n,) of the flattened batch. All that
                follows self-attention is computed there only, as (1, n, C).
            **kwargs: `cache`, and what is meant for attention kernels.
        """

        def attend(x: Tensor) -> Tensor:
            given = {"packed_bias": packed_bias, "output_positions": output_positions}
            return self.attention_dropout(
                self.self_attention(x, attention_mask, rotation, **given, **kwargs)[0]
            )

        def attend_to_encoder(x: Tensor) -> Tensor:
            assert self.cross_attention is not None
            source = encoder_hidden_states, encoder_attention_mask
            return self.attention_dropout(self.cross_attention(x, *source, **kwargs)[0])

        x = select_positions(hidden_states, output_positions)
        return self.apply_sublayers(hidden_states, x, attend, attend_to_encoder)

    @abstractmethod
    def apply_sublayers(
        self, stream: Tensor, x: Tensor, attend: SubLayer, attend_to_encoder: SubLayer
    ) -> Tensor:
        """Apply sub-layers and norms to the stream (B, T, C), of which `x` are the positions that go on."""


class PreNormBlock(Block):
    """x + f(norm(x)): gradients pass through the sums untouched (Xiong et al., 2020)."""

    def apply_sublayers(
        self, stream: Tensor, x: Tensor, attend: SubLayer, attend_to_encoder: SubLayer
    ) -> Tensor:
        x = x + attend(self.self_attention_norm(stream))
        if self.cross_attention is not None:
            x = x + attend_to_encoder(self.cross_attention_norm(x))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class PostNormBlock(Block):
    """norm(x + f(x)), as in Vaswani et al., 2017, section 3.1, and BERT."""

    def apply_sublayers(
        self, stream: Tensor, x: Tensor, attend: SubLayer, attend_to_encoder: SubLayer
    ) -> Tensor:
        x = self.self_attention_norm(x + attend(stream)).to(x.dtype)
        if self.cross_attention is not None:
            x = self.cross_attention_norm(x + attend_to_encoder(x)).to(x.dtype)
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x))).to(x.dtype)


class ParallelBlock(Block):
    """x + f(norm(x)) + g(norm(x)), as in GPT-NeoX (Black et al., 2022, section 2.1.2)."""

    def apply_sublayers(
        self, stream: Tensor, x: Tensor, attend: SubLayer, attend_to_encoder: SubLayer
    ) -> Tensor:
        result = x + attend(self.self_attention_norm(stream))
        if self.cross_attention is not None:
            result = result + attend_to_encoder(self.cross_attention_norm(x))
        return result + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


BLOCKS: dict[str, type[Block]] = {"pre": PreNormBlock, "post": PostNormBlock, "parallel": ParallelBlock}
