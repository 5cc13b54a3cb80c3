"""Attention patterns: which keys a query may attend to, layer by layer.

A pattern is a small class, and its name in `PATTERNS` is what a configuration calls the type of a layer. What
defines it is `allows`; all else serves kernels, which take a mask, a window, or the bounds of sequences.

A window is `sliding_window` = w, and means what it does to transformers' masks. In a decoder, token i attends
to the w tokens i - w < j <= i, itself included (Jiang et al., 2023, section 2: Mistral). In an encoder it
attends to the 2 w + 1 tokens |i - j| <= w. Warner et al., 2024, section 2.1.2 (ModernBERT), count both sides
at once: their 128 is w = 64 here, and covers 64 tokens to the left, 64 to the right, and the token itself.
A model that is read in the other direction keeps its reach: a decoder without its causal mask attends to
|i - j| < w.

Shapes: B batch, T queries, S keys, C model width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.masking_utils import (
    create_bidirectional_mask,
    create_bidirectional_sliding_window_mask,
    create_causal_mask,
    create_sliding_window_causal_mask,
)

from ..compatibility import register_layer_types
from .abstract_pattern import AttentionPattern, MappedPattern
from .big_bird import BigBirdAttention, StockBigBirdAttention

SLIDING_BLOCK = 64
"""Tokens of the blocks by which kernels compute long windows."""

SMALLEST_WINDOW = 2
"""Of a window of 1, transformers' caches would keep everything instead of nothing."""


class FullAttention(AttentionPattern):
    """All keys, or in a decoder all up to the query (Vaswani et al., 2017, section 3.2.3)."""

    @classmethod
    def require(cls, config: PreTrainedConfig, layer_types: str) -> None:
        pass  # a window is for other layers

    def allows(self, queries: Tensor, keys: Tensor) -> Tensor:
        distances = queries - keys
        return distances >= 0 if self.is_causal else torch.ones_like(distances, dtype=torch.bool)

    def is_full(self, length: int) -> bool:
        return True

    def stock_mask(self, global_tokens: Tensor | None) -> Callable[..., Any]:
        return create_causal_mask if self.is_causal else create_bidirectional_mask


class SlidingAttention(AttentionPattern):
    """Keys within the configuration's `sliding_window` of the query (Beltagy et al., 2020, section 3.1)."""

    fields = ("sliding_window",)

    def __init__(self, config: PreTrainedConfig, *, is_causal: bool):
        super().__init__(config, is_causal=is_causal)
        self.block_size: int = SLIDING_BLOCK
        # Kernels count the query itself, which an encoder's window leaves out.
        counts_query = is_of_decoder(config)
        self.window: int = config.sliding_window if counts_query else config.sliding_window + 1
        self.is_read_as_built = is_causal == counts_query

    @classmethod
    def require(cls, config: PreTrainedConfig, layer_types: str) -> None:
        if (config.sliding_window or 0) < SMALLEST_WINDOW:
            raise ValueError(
                f"sliding_window is {config.sliding_window}, but {layer_types} has sliding layers: "
                f"choose {SMALLEST_WINDOW} or more"
            )

    def allows(self, queries: Tensor, keys: Tensor) -> Tensor:
        distances = queries - keys
        return (distances < self.window) & (distances >= 0 if self.is_causal else -distances < self.window)

    def key_blocks(self, num_blocks: int) -> list[list[int]]:
        reach = -(-(self.window - 1) // self.block_size)
        ahead = 0 if self.is_causal else reach
        return [
            list(range(max(0, block - reach), min(num_blocks, block + ahead + 1)))
            for block in range(num_blocks)
        ]

    def is_full(self, length: int) -> bool:
        return length <= self.window

    def stock_mask(self, global_tokens: Tensor | None) -> Callable[..., Any] | None:
        if global_tokens is not None or not self.is_read_as_built:
            return None
        return (
            create_sliding_window_causal_mask if self.is_causal else create_bidirectional_sliding_window_mask
        )


class StridedAttention(MappedPattern):
    """The last `attention_stride` keys, and every stride-th one before (Child et al., 2019, section 4.2).

    Their two heads, "merged" in one. An encoder sees the same behind the query as before it.
    """

    fields = ("attention_stride",)

    @classmethod
    def require(cls, config: PreTrainedConfig, layer_types: str) -> None:
        if config.attention_stride < 1:
            raise ValueError(
                f"attention_stride is {config.attention_stride}, but {layer_types} has strided layers: "
                "choose 1 or more"
            )

    def allows(self, queries: Tensor, keys: Tensor) -> Tensor:
        distances, stride = queries - keys, self.config.attention_stride
        allowed = (distances.abs() <= stride) | (distances % stride == 0)
        return allowed & (distances >= 0) if self.is_causal else allowed

    def is_full(self, length: int) -> bool:
        return length <= self.config.attention_stride + 1 or self.config.attention_stride == 1


PATTERNS: dict[str, type[AttentionPattern]] = {
    "full_attention": FullAttention,
    "sliding_attention": SlidingAttention,
    "strided_attention": StridedAttention,
    "big_bird_attention": BigBirdAttention,
    "stock_big_bird_attention": StockBigBirdAttention,
}
"""What a layer may be, in transformers' words where it has them."""

register_layer_types(PATTERNS)


def require_layer_types(config: PreTrainedConfig, prefix: str = "") -> None:
    """Raise a `ValueError` unless each layer has a type, and each type the fields that it needs.

    Without types all layers slide if there is a window, as transformers' caches have it.
    """
    name = f"{prefix}layer_types"
    layer_types, num_layers = getattr(config, name), getattr(config, f"{prefix}num_hidden_layers")
    if layer_types is None:
        layer_types = [] if config.sliding_window is None else ["sliding_attention"] * num_layers
        num_layers = len(layer_types)
    if not set(layer_types) <= set(PATTERNS):
        raise ValueError(f"{name} is {layer_types}: choose {' or '.join(PATTERNS)} for each layer")
    if len(layer_types) != num_layers:
        raise ValueError(
            f"{name} has {len(layer_types)} entries, but {prefix}num_hidden_layers is {num_layers}: "
            "give each layer its type"
        )
    for layer_type in dict.fromkeys(layer_types):
        PATTERNS[layer_type].require(config, name)
        if PATTERNS[layer_type].is_bidirectional_only and is_of_decoder(config, prefix):
            raise ValueError(
                f"{name} has layers of type {layer_type!r}, which has no causal form: choose another type in "
                "a decoder"
            )


def is_of_decoder(config: PreTrainedConfig, prefix: str = "") -> bool:
    """Return whether layers are a decoder's: the only ones of a decoder, or those named by a prefix."""
    return bool(prefix) or config.model_type.endswith("decoder")
