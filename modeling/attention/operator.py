"""Attention over packed sequences as an operator that compilers keep whole.

Their graphs hold operations on tensors of known sizes. What happens here depends on the bounds of the
sequences, and is none of their business. The backward pass computes the weights again, with the same dropout.

A second definition of an operator replaces the first one, whoever called it. Each copy of this code, as lies
beside weights, therefore has a namespace of its own.

Shapes: N tokens of queries, M of keys, H query heads, G key-value heads, D head width; b, t, s of a group of
sequences of similar length.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .dot_product import additive
from .sequence_groups import SequenceGroups, group_sequences
from .short_sequences import Attended
from .varlen import ENDLESS

NAMESPACE = re.sub(r"\W", "_", __name__, flags=re.ASCII)
"""Of the operators: the name of this module."""


@dataclass(frozen=True)
class Grouped:
    """Queries, keys and values of a stream in groups of similar length."""

    query: Tensor
    key: Tensor
    value: Tensor
    cu_seq_lens_q: Tensor
    cu_seq_lens_k: Tensor
    bias: Tensor | None
    scaling: float
    dropout: float
    is_causal: bool
    window: int

    @cached_property
    def groups(self) -> SequenceGroups:
        """Where the tokens stand in the groups."""
        is_self = self.cu_seq_lens_q.data_ptr() == self.cu_seq_lens_k.data_ptr()
        return group_sequences(self.cu_seq_lens_q, None if is_self else self.cu_seq_lens_k)

    def split(self) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None]]:
        """Yield each group's queries, keys and values, (b, heads, t, D), and what adds to its scores."""
        queries, keys = self.groups.queries, self.groups.keys
        sides = ((queries, self.query), (keys, self.key), (keys, self.value))
        for number, parts in enumerate(zip(*(slots.split(x) for slots, x in sides), strict=True)):
            query, key, value = (part.transpose(1, 2) for part in parts)
            repeats = query.shape[1] // key.shape[1]
            key, value = (x.repeat_interleave(repeats, dim=1) for x in (key, value))
            yield query.contiguous(), key.contiguous(), value.contiguous(), self.added(number, query, key)

    def added(self, number: int, query: Tensor, key: Tensor) -> Tensor | None:
        """Return what is added to the scores of a group, (b or 1, H or 1, t, s)."""
        bias = None if self.bias is None else self.bias[..., : query.shape[2], : key.shape[2]]
        mask = self.groups.keys.key_mask(number)
        if self.is_causal or self.window != ENDLESS:
            places = (torch.arange(x.shape[2], device=x.device) for x in (query, key))
            distances = torch.sub(*(x.unsqueeze(axis) for x, axis in zip(places, (1, 0), strict=True)))
            near = distances.abs() < (self.window if self.window != ENDLESS else len(distances) + 1)
            allowed = near & (distances >= 0) if self.is_causal else near
            mask = allowed if mask is None else mask & allowed
        return additive(mask, False, key.shape[2], like=query, bias=bias)

    def attended(self) -> Iterator[Attended]:
        """Let each group attend."""
        for query, key, value, added in self.split():
            yield Attended.compute(query, key, value, added, self.scaling, self.dropout)

    def values(self) -> Tensor:
        """Return the values of all tokens, (N, H, D)."""
        return self.groups.queries.join([group.values.transpose(1, 2) for group in self.attended()])

    def gradients(self, gradient: Tensor) -> list[Tensor]:
        """Return those of queries, keys, values and the bias."""
        queries, keys = self.groups.queries, self.groups.keys
        of_groups: list[list[Tensor]] = [[], [], []]
        d_bias = None if self.bias is None else torch.zeros_like(self.bias)
        for group, part in zip(self.attended(), queries.split_gradient(gradient), strict=True):
            *gradients, d_scores = group.gradients(part.transpose(1, 2), self.scaling)
            for found, each in zip(of_groups, gradients, strict=True):
                found.append(each.transpose(1, 2))
            if d_bias is not None:
                rows, columns = d_scores.shape[2:]
                d_bias[..., :rows, :columns] += d_scores.sum_to_size(*d_bias.shape[:2], rows, columns)
        sides = zip((queries, keys, keys), of_groups, (self.query, self.key, self.value), strict=True)
        joined = [summed(slots.join(parts), like.shape[1]) for slots, parts, like in sides]
        return joined if d_bias is None else [*joined, d_bias]


def summed(gradient: Tensor, num_heads: int) -> Tensor:
    """Add up the gradients of heads (M, H, D) that share keys: (M, G, D)."""
    return gradient.unflatten(1, (num_heads, -1)).sum(2)


@contextmanager
def drawn_from(seed: Tensor | None) -> Iterator[None]:
    """Draw dropout from a seed of its own, the same whenever it is drawn again; `None`: nothing is drawn."""
    if seed is None:
        yield
        return
    devices = [] if seed.is_cpu else [seed.device]
    with torch.random.fork_rng(devices, device_type="cuda" if seed.is_cpu else seed.device.type):
        torch.manual_seed(int(seed))
        yield


@torch.library.custom_op(f"{NAMESPACE}::packed_attention", mutates_args=())
def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_lens_q: Tensor,
    cu_seq_lens_k: Tensor,
    bias: Tensor | None,
    seed: Tensor | None,
    scaling: float,
    dropout: float,
    is_causal: bool,
    window: int,
) -> Tensor:
    """Let each query (N, H, D) attend to the keys of its own sequence, (M, G, D); returns (N, H, D)."""
    streams = query, key, value, cu_seq_lens_q, cu_seq_lens_k, bias
    with torch.no_grad(), drawn_from(seed):
        return Grouped(*streams, scaling, dropout, is_causal, window).values()


@torch.library.custom_op(f"{NAMESPACE}::packed_attention_backward", mutates_args=())
def packed_attention_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_lens_q: Tensor,
    cu_seq_lens_k: Tensor,
    bias: Tensor | None,
    seed: Tensor | None,
    scaling: float,
    dropout: float,
    is_causal: bool,
    window: int,
) -> list[Tensor]:
    """Return the gradients of queries, keys and values, and of a bias, if there is one."""
    streams = query, key, value, cu_seq_lens_q, cu_seq_lens_k, bias
    with torch.no_grad(), drawn_from(seed):
        return Grouped(*streams, scaling, dropout, is_causal, window).gradients(gradient)


@packed_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Tensor:
    return query.new_empty(query.shape)


@packed_attention_backward.register_fake
def _(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, q: Tensor, k: Tensor, bias: Any, *_: Any
) -> list[Tensor]:
    given = [x for x in (query, key, value, bias) if x is not None]
    return [x.new_empty(x.shape) for x in given]


def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep what the backward pass needs."""
    *tensors, ctx.scaling, ctx.dropout, ctx.is_causal, ctx.window = inputs
    ctx.save_for_backward(*tensors)


def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Compute the gradients of tensors, in their order."""
    settings = (ctx.scaling, ctx.dropout, ctx.is_causal, ctx.window)
    bias = ctx.saved_tensors[5]
    of_query, of_key, of_value, *of_bias = packed_attention_backward(
        gradient.contiguous(), *ctx.saved_tensors, *settings
    )
    return of_query, of_key, of_value, None, None, (of_bias[0] if bias is not None else None), *[None] * 5


packed_attention.register_autograd(backward, setup_context=keep)
