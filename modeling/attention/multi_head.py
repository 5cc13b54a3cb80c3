"""Multi-head attention, the only place where positions exchange information.

One mechanism serves all three uses (Vaswani et al., 2017, section 3.2.3): self-attention in both directions
(encoder), causal self-attention (decoder), and cross-attention from a decoder to an encoder. They differ in
where keys and values come from and in which pairs the mask allows, nowhere else.

Shapes: B batch, T queries, S keys, C model width, H query heads, G key-value heads, D head width.
"""

from typing import Any

from torch import Tensor, nn
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.generation.continuous_batching import PagedAttentionCache

from ..compatibility import fill_pages
from ..configuration_tercet import TercetConfig
from ..layers.position_wise import build_head_norm, project, residual_linear
from ..layers.positions import Rotation, rotate
from .kernels import attend
from .packing import Mask, extend, of_target, select_positions
from .patterns import PATTERNS, AttentionPattern, FullAttention
from .scores import GATES, SCORES


class Attention(nn.Module):
    """Projections, and values weighted by the scores of queries and keys. Abstract: see the two below."""

    prepacks = True

    def __init__(self, config: TercetConfig, layer_idx: int, pattern: AttentionPattern):
        super().__init__()
        assert config.head_dim is not None  # every configuration fills it in
        query_width = config.num_attention_heads * config.head_dim
        key_width = (config.num_key_value_heads or config.num_attention_heads) * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, query_width, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias)
        self.o_proj = residual_linear(config, query_width, bias=bool(config.attention_out_bias))
        self.q_norm = build_head_norm(config)
        self.k_norm = build_head_norm(config)
        self.score = SCORES[config.attention_score](config)
        self.gate = GATES[config.attention_gate](config)

        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.pattern = pattern
        # Transformers' attention kernels look up these two in the module they are given.
        self.is_causal = pattern.is_causal
        self.num_key_value_groups = query_width // key_width

    def heads(self, x: Tensor, norm: nn.Module | None = None) -> Tensor:
        """Split the last dimension into heads: (B, T, H*D) -> (B, H, T, D).

        A norm of heads is computed before the transposition. Behind it, compiled graphs would write gradients
        in the order of heads, and copy them back for the next product.
        """
        x = x.view(*x.shape[:-1], -1, self.head_dim)
        return (x if norm is None else norm(x)).transpose(1, 2)

    def attend(
        self,
        hidden_states: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask,
        pattern: AttentionPattern,
        *,
        output_positions: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Let `query` (B, H, T, D) attend to `key` and `value` (B, G, S, D), and project back to (B, T, C).

        Keys are prepared for the score, and maybe cached. The gate reads `hidden_states` (B, T, C), as the
        sub-layer does. With `output_positions` (n,) of the flattened batch, only these are projected back, as
        (1, n, C).
        """
        values, weights = attend(
            self,
            self.score.prepare_query(query),
            key,
            value,
            mask,
            pattern,
            scaling=self.score.scaling,
            dropout=self.config.attention_dropout if self.training else 0.0,
            **kwargs,
        )
        values = select_positions(values.flatten(start_dim=-2), output_positions)
        return self.o_proj(self.gate(values, hidden_states, output_positions)), weights


class SelfAttention(Attention):
    """Positions attend to their own sequence, by the pattern of the layer."""

    def __init__(self, config: TercetConfig, layer_idx: int, *, is_causal: bool):
        pattern = PATTERNS[config.types_of_layers[layer_idx]](config, is_causal=is_causal)
        super().__init__(config, layer_idx, pattern)
        self.sliding_window = pattern.window

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Mask,
        rotation: Rotation | None,
        cache: Cache | None = None,
        is_causal: bool | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend to the sequence itself (B, T, C), and to the cached positions before it.

        `is_causal` replaces the direction of the layer's pattern for this call.
        """
        query, key, value = project(hidden_states, self.q_proj, self.k_proj, self.v_proj)
        query, key = self.heads(query, self.q_norm), self.heads(key, self.k_norm)
        query, key, value = rotate(query, by=rotation), rotate(key, by=rotation), self.heads(value)
        key = self.score.prepare_key(key)
        cache = of_target(cache)
        if isinstance(cache, PagedAttentionCache):
            key, value = fill_pages(cache, key, value, self.layer_idx, kwargs)
        elif cache is not None:
            _, (key, value) = extend(cache, key, value, self.layer_idx, attention_mask)
        pattern = self.pattern.toward(is_causal)
        kwargs["sliding_window"] = pattern.window
        return self.attend(hidden_states, query, key, value, attention_mask, pattern, **kwargs)


class CrossAttention(Attention):
    """Positions of a decoder attend to an encoder's output, which no step of decoding changes."""

    def __init__(self, config: TercetConfig, layer_idx: int):
        super().__init__(config, layer_idx, FullAttention(config, is_causal=False))

    def forward(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: Mask,
        cache: EncoderDecoderCache | None = None,
        is_causal: bool | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend to the encoder's output (B, S, C) with the decoder's queries (B, T, C).

        `is_causal` is the direction of self-attention, and changes nothing here.
        """
        query = self.heads(self.q_proj(hidden_states), self.q_norm)
        key, value = self.keys_and_values(encoder_hidden_states, cache, attention_mask)
        return self.attend(hidden_states, query, key, value, attention_mask, self.pattern, **kwargs)

    def keys_and_values(
        self, encoder_hidden_states: Tensor, cache: EncoderDecoderCache | None, mask: Mask
    ) -> tuple[Tensor, Tensor]:
        """Project the encoder's output once per generation; the cache keeps the result."""
        if cache is not None and cache.is_updated.get(self.layer_idx):
            layer: Any = cache.cross_attention_cache.layers[self.layer_idx]
            return layer.keys, layer.values
        key, value = project(encoder_hidden_states, self.k_proj, self.v_proj)
        key, value = self.score.prepare_key(self.heads(key, self.k_norm)), self.heads(value)
        if cache is not None:
            source = cache.cross_attention_cache
            whole, (key, value) = extend(source, key, value, self.layer_idx, mask)
            # A layer made for a sliding window would keep the end of the source only.
            layer = source.layers[self.layer_idx]
            layer.keys, layer.values = whole
            cache.is_updated[self.layer_idx] = True
        return key, value
