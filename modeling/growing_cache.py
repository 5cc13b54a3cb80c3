"""A cache of keys and values with spare capacity: a step writes what is new, and copies nothing else.

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

from .tracing import is_tracing

MIN_SPARE_POSITIONS = 128
"""Least number of positions that a new buffer has beyond those that are filled."""


class Buffer:
    """Storage for keys or values (B, G, S, D), larger than what is filled."""

    def __init__(self) -> None:
        self.storage = self.filled = torch.empty(0, 0, 0, 0)

    def append(self, present: Tensor | None, new: Tensor) -> Tensor:
        """Give `present` and then `new`: what is present stays where it is, if it came from here."""
        start = 0 if present is None or not present.numel() else present.shape[-2]
        end = start + new.shape[-2]
        is_closed = self.storage.is_inference() and not torch.is_inference_mode_enabled()
        if present is not self.filled or end > self.storage.shape[-2] or is_closed:
            self.storage = new.new_empty(*new.shape[:-2], end + max(end, MIN_SPARE_POSITIONS), new.shape[-1])
            if present is not None and start:
                self.storage[..., :start, :] = present
        self.storage[..., start:end, :] = new
        self.filled = self.storage[..., :end, :]
        return self.filled


BUFFERS = ("key_buffer", "value_buffer")
"""What a growing layer has beside what transformers' own has."""


class GrowingLayer(DynamicLayer):
    """The keys and values of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.key_buffer, self.value_buffer = Buffer(), Buffer()

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values (B, G, T, D), and give all of them, (B, G, S, D).

        Where a gradient may need them unchanged, or a graph is made, they are concatenated as before.
        """
        if torch.is_grad_enabled() or is_tracing():
            return super().update(key_states, value_states, *args, **kwargs)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = self.key_buffer.append(self.keys, key_states)
        self.values = self.value_buffer.append(self.values, value_states)
        return self.keys, self.values


def make_growing(cache: Cache | None) -> None:
    """Let a dynamic cache grow in place, new or filled; beside an encoder, the part that grows at all."""
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    if type(cache) is DynamicCache and not cache.offloading and not is_tracing():
        cache.layers = [converted(layer, DynamicLayer, GrowingLayer) for layer in cache.layers]


def make_dynamic(cache: Cache | None) -> None:
    """Make a cache transformers' own again, without spare capacity, to be kept, copied or exported."""
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    if cache is not None:
        cache.layers = [converted(layer, GrowingLayer, DynamicLayer) for layer in cache.layers]


def converted(layer: Any, kind: type[DynamicLayer], into: type[DynamicLayer]) -> Any:
    """Convert a layer of exactly one kind into another kind, with what it holds; others stay as they are."""
    if type(layer) is not kind:
        return layer
    result = into()
    vars(result).update({name: value for name, value in vars(layer).items() if name not in BUFFERS})
    if into is GrowingLayer:
        result.key_buffer, result.value_buffer = Buffer(), Buffer()  # pyright: ignore[reportAttributeAccessIssue]
    return result


def grows(cache: Cache | None) -> bool:
    """Tell whether a cache, or the part of it that grows at all, does so in place."""
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    layers = [] if cache is None else cache.layers
    return bool(layers) and all(type(layer) is GrowingLayer for layer in layers)
