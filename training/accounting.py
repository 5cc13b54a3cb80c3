"""What a run did by its own counts, beside what its recipe asks for.

`Progress` counts examples, tokens and targets while a run learns. The weights that were scored and those that
are saved are known by their hashes. A line on the screen says where done and asked differ.
"""

import sys
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .loop import Progress


def hash_of_weights(weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of tensors and their names."""
    digest = sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def tell_of_amount(
    run: str, what: str, done: int, asked: float, progress: "Progress", *, tolerance: float
) -> None:
    """Print how much a run has learned from, if its recipe asks for another amount or steps had no effect."""
    skipped = int(progress.skipped)
    if abs(done - asked) < tolerance and not skipped:
        return
    steps = "1 step" if skipped == 1 else f"{skipped:,} steps"
    without = f"; {steps} had no effect, since the gradient was not finite" if skipped else ""
    tell(f"{run} has learned from {done:,} {what}, and its recipe asks for {asked:,.0f}{without}")


def tell_of_weights(run: str, scored: Mapping[str, str], saved: Mapping[str, str]) -> None:
    """Print which kinds of weights were saved with other numbers than those that were scored."""
    for kind in sorted(kind for kind in scored.keys() & saved.keys() if scored[kind] != saved[kind]):
        tell(f"{run}: the scores of the weights {kind!r} are of other numbers than those that are saved")


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
