"""A cache of keys and values with room to grow: a step writes what is new, and copies nothing else.

transformers' dynamic cache concatenates, so that every step copies all keys and values so far. Here they lie
in a buffer of up to twice their size, and the cache shows the part of it that is filled. All else that caches
can do (to be cropped, repeated, reordered for beams) is transformers'; what has come about in such a way goes
into a new buffer with the next step.

Shapes: B batch, G key-value heads, S positions, D head width.
"""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache

LEAST_ROOM = 128
"""Positions for which a new buffer has room, at least, beyond those that are filled."""


class Buffer:
    """Room for keys or values (B, G, S, D), and more of them."""

    def __init__(self) -> None:
        self.room = self.filled = torch.empty(0, 0, 0, 0)

    def append(self, present: Tensor | None, new: Tensor) -> Tensor:
        """Give `present` and then `new`: what is present stays where it is, if it came from here."""
        start = 0 if present is None or not present.numel() else present.shape[-2]
        end = start + new.shape[-2]
        is_closed = self.room.is_inference() and not torch.is_inference_mode_enabled()
        if present is not self.filled or end > self.room.shape[-2] or is_closed:
            self.room = new.new_empty(*new.shape[:-2], end + max(end, LEAST_ROOM), new.shape[-1])
            if present is not None and start:
                self.room[..., :start, :] = present
        self.room[..., start:end, :] = new
        self.filled = self.room[..., :end, :]
        return self.filled


class GrowingLayer(DynamicLayer):
    """The keys and values of one layer."""

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Start with none, of the type and on the device of the first ones."""
        super().lazy_initialization(key_states, value_states)
        self.key_buffer, self.value_buffer = Buffer(), Buffer()

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values (B, G, T, D), and give all of them, (B, G, S, D).

        Where a gradient may need them unchanged, they are concatenated as ever.
        """
        if torch.is_grad_enabled():
            return super().update(key_states, value_states, *args, **kwargs)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = self.key_buffer.append(self.keys, key_states)
        self.values = self.value_buffer.append(self.values, value_states)
        return self.keys, self.values


def let_grow(cache: Cache | None) -> None:
    """Let a new dynamic cache grow in place; beside an encoder, the part that grows at all."""
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    if type(cache) is DynamicCache and not cache.offloading:
        cache.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]


def grows(cache: Cache | None) -> bool:
    """Tell whether a cache, or the part of it that grows at all, does so in place."""
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    layers = [] if cache is None else cache.layers
    return bool(layers) and all(type(layer) is GrowingLayer for layer in layers)
