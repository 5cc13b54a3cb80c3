"""Dropout (Srivastava et al., 2014), with a faster way to draw what is dropped on a CPU.

torch draws a float for every element there, one after another: one in six nanoseconds. Sixteen bits are
enough to decide whether an element is kept, and one draw of a 64-bit generator gives four of them, in two
nanoseconds. The generator is seeded by torch's, so that `torch.manual_seed`, checkpoints of its state and
recomputed activations govern this dropout as they do torch's own.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ..tracing import is_tracing

LEVELS = 2**16
"""Number of probabilities that sixteen bits distinguish."""


class Dropout(nn.Dropout):
    """Set elements to zero with probability `p` in training, and scale the others by 1 / (1 - p)."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop elements of a tensor of any shape."""
        return drop(input, self.p) if self.training else input


def drop(x: Tensor, probability: float) -> Tensor:
    """Drop elements of `x`: by torch's own dropout, or on a CPU by sixteen random bits for each."""
    if probability == 0:
        return x
    is_plain_case = x.device.type == "cpu" and probability < 1
    if not is_plain_case or is_tracing():
        return F.dropout(x, probability)
    return _Drop.apply(x, probability)


def draw_kept(x: Tensor, probability: float) -> tuple[Tensor, float]:
    """Draw which elements of `x` are kept, in the form that `masked` takes, and the factor of those that are.

    The factor is the inverse of the share that is kept in the mean, a multiple of 1 / 65,536. Where `x` is
    more or less than a plain tensor (sharded, or without data) torch draws.
    """
    form = torch.int16 if x.itemsize == torch.int16.itemsize else torch.uint8
    if type(x) is not Tensor:
        kept = torch.empty_like(x, dtype=form, requires_grad=False).bernoulli_(1 - probability)
        return (kept.neg_() if form == torch.int16 else kept), 1 / (1 - probability)
    shape = x.shape
    num_dropped = min(round(probability * LEVELS), LEVELS - 1)
    seed = int(torch.randint(2**63 - 1, ()))
    bits = np.random.SFC64(seed).random_raw(-(-shape.numel() // 4)).view(np.int16)[: shape.numel()]
    # In place and in integers: torch compares and multiplies booleans ten times slower.
    kept = torch.from_numpy(bits).view(shape).ge_(num_dropped - LEVELS // 2)
    return (kept.neg_() if form == torch.int16 else kept.to(form)), LEVELS / (LEVELS - num_dropped)


def masked(x: Tensor, is_kept: Tensor) -> Tensor:
    """Set to zero what is not kept: 16-bit numbers by all or no bits in int16, others by ones in uint8."""
    if is_kept.dtype == torch.int16:
        return (x.view(torch.int16) & is_kept).view(x.dtype)
    return x * is_kept.to(x.dtype)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float) -> Tensor:
        is_kept, ctx.factor = draw_kept(x, probability)
        ctx.save_for_backward(is_kept)
        return masked(x, is_kept).mul_(ctx.factor)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor, None]:
        (is_kept,) = ctx.saved_tensors
        return masked(gradient, is_kept).mul_(ctx.factor), None
