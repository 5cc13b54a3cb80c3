"""How far a kernel of packed sequences is from the definition of attention."""

from collections.abc import Callable

import torch
from torch import Tensor

from tercet.modeling.attention.packing import PackedSequences

NOISE = 0.02
"""Relative differences of values and gradients that bfloat16 explains."""


def disagreement(
    attend: Callable[..., Tensor], device: torch.device, dtype: torch.dtype = torch.bfloat16
) -> float:
    """Measure how far a kernel is from the definition, with a causal window and shared keys.

    Of the values and of each gradient it is the difference relative to their length. A kernel may round the
    gradient of each query head before it adds up those that share a key, so that a large one differs by more.
    """
    generator = torch.Generator().manual_seed(0)
    lengths = (5, 16, 3)
    sizes = [(sum(lengths), heads, 16) for heads in (4, 2, 2)]
    inputs = [torch.randn(size, generator=generator).to(device, dtype).requires_grad_() for size in sizes]
    bounds = torch.tensor([0, 5, 21, 24], dtype=torch.int32, device=device)
    sequences = PackedSequences(bounds, bounds, max(lengths), max(lengths))
    query, key, value = inputs
    found = attend(query, key, value, sequences, scaling=0.25, is_causal=True, sliding_window=4)
    query, key, value = (x.float() for x in inputs)
    places, numbers = torch.arange(sum(lengths), device=device), torch.arange(len(lengths), device=device)
    numbers = numbers.repeat_interleave(bounds.diff().long())
    distances = places[:, None] - places
    allowed = (distances >= 0) & (distances < 4) & (numbers[:, None] == numbers)
    scores = torch.einsum("thd,shd->hts", query, key.repeat_interleave(2, dim=1)) * 0.25
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    expected = torch.einsum("hts,shd->thd", weights, value.repeat_interleave(2, dim=1))
    sides = [(x, *torch.autograd.grad(x.sum(), inputs)) for x in (found, expected)]
    pairs = ((left.float(), right.float()) for left, right in zip(*sides, strict=True))
    differences = [(left - right).norm() / right.norm() for left, right in pairs]
    return float(torch.stack(differences).detach().max())  # no number if one is none, unlike Python's `max`
