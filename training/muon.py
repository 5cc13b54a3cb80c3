"""Muon (Jordan et al., 2024): a matrix is moved by the momentum of its gradient, made nearly orthogonal.

No direction is then learned faster than another. That is meant for matrices that map hidden states to hidden
states. An update is scaled to be as long as one of AdamW's (Liu et al., 2025, "Muon is scalable for LLM
training", section 2.2), so that both can take one learning rate and one weight decay:

    M = mu M + (1 - mu) G
    O = orthogonalized(mu M + (1 - mu) G)
    W = (1 - rate * decay) W - rate * 0.2 sqrt(max(A, B)) * O

This is `torch.optim.Muon` with `adjust_lr_fn="match_rms_adamw"`, with fewer and larger products, and fast on
machines without bfloat16, too (`orthogonalization.py`).

Legend: A rows, B columns.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .orthogonalization import batches_of_one_shape, orthogonalized

MOMENTUM = "momentum_buffer"
"""Name of a matrix's momentum in the optimizer's state, as in `torch.optim.Muon`."""


class Muon(Optimizer):
    """Moves matrices by orthogonalized updates.

    Args:
        matrices: (A, B) each.
        lr: Learning rate, in the size of AdamW's.
        weight_decay: Relative to the learning rate.
        momentum: Decay rate of the momentum, mu.
        constants: Further ones, of a subclass.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float,
        *,
        momentum: float = 0.95,
        **constants: float,
    ):
        constants = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, **constants}
        super().__init__(matrices, constants)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Move all matrices that have gradients once; there can be no `closure`."""
        assert closure is None
        for group in self.param_groups:
            for batch in batches_of_one_shape([p for p in group["params"] if p.grad is not None]):
                directions = orthogonalized([self._look_ahead(matrix, group["momentum"]) for matrix in batch])
                for matrix, direction in zip(batch, directions, strict=True):
                    update = self._update(matrix, direction, group)
                    matrix.mul_(1 - group["lr"] * group["weight_decay"])
                    matrix.add_(update, alpha=-group["lr"] * 0.2 * math.sqrt(max(matrix.shape)))

    def _look_ahead(self, matrix: Tensor, momentum: float) -> Tensor:
        """Advance a matrix's momentum and give Nesterov's view of it."""
        assert matrix.grad is not None
        state = self.state[matrix]
        if not state:
            state[MOMENTUM] = torch.zeros_like(matrix)
        average = state[MOMENTUM].lerp_(matrix.grad, 1 - momentum)
        return matrix.grad.lerp(average, momentum)

    def _update(self, matrix: Tensor, direction: Tensor, group: dict[str, Any]) -> Tensor:
        """Give what moves a matrix, (A, B), as long as its orthogonalized direction."""
        return direction
