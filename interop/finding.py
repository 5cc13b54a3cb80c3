"""What an examination finds: a verdict, what was measured, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Verdict = Literal["ok", "warning", "failed", "not applicable"]

TOLERANCE = 1e-4
"""Largest difference of numbers that count as equal, as a part of the largest of them; float32 has 1e-7."""


@dataclass(frozen=True)
class Finding:
    """What one examination has found.

    Args:
        verdict: `failed` where results are wrong or random, `warning` where they may become so in training or
            in use, `not applicable` where the model has nothing to be examined.
        measured: The numbers or names that the verdict rests on.
        remedy: What to do, unless all is well.
    """

    verdict: Verdict
    measured: str
    remedy: str = ""


def agreement(ours: Tensor, expected: Tensor, remedy: str) -> Finding:
    """Find whether two ways led to the same numbers."""
    apart = difference(ours, expected)
    measured = f"difference {apart:.1e} of the largest number, tolerance {TOLERANCE:.0e}"
    return Finding("ok", measured) if apart <= TOLERANCE else Finding("failed", measured, remedy)


def difference(ours: Tensor, expected: Tensor) -> float:
    """Give the largest difference, as a part of the largest number expected."""
    largest = expected.abs().max().clamp(min=torch.finfo(expected.dtype).tiny)
    return float((ours - expected).abs().max() / largest)


def listed(names: Iterable[str], limit: int = 3) -> str:
    """Join the first names, and count the others."""
    ordered = sorted(names)
    shown = ", ".join(ordered[:limit])
    return f"{shown} and {len(ordered) - limit} more" if len(ordered) > limit else shown
