"""Muon (Jordan et al., 2024): a matrix is moved by the momentum of its gradient, made nearly orthogonal.

No direction is then learned faster than another. That is meant for matrices that map hidden states to hidden
states. An update is scaled to be as long as one of AdamW's (Liu et al., 2025, "Muon is scalable for LLM
training", section 2.2), so that both can take one learning rate and one weight decay:

    M = mu M + (1 - mu) G
    O = orthogonalized(mu M + (1 - mu) G)
    W = (1 - rate * decay) W - rate * 0.2 sqrt(max(A, B)) * O

This is `torch.optim.Muon` with `adjust_lr_fn="match_rms_adamw"`, with fewer and larger products, and fast on
machines without bfloat16, too (`orthogonalization.py`).

Legend: A rows, B columns, K matrices of one shape, which move together.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from .orthogonalization import batches_of_one_shape, orthogonalized, pieces
from .skipping import FOUND_INF

MOMENTUM = "momentum_buffer"
"""Name of a matrix's momentum in the optimizer's state, as in `torch.optim.Muon`."""


class Muon(Optimizer):
    """Moves matrices by orthogonalized updates.

    Like torch's fused optimizers it can be told on the device, by the attribute `found_inf`, to do nothing:
    weights and state then stay as they are, to the last bit, whatever the gradients hold.

    Args:
        matrices: (A, B) each.
        lr: Learning rate, in the size of AdamW's.
        weight_decay: Relative to the learning rate.
        momentum: Decay rate of the momentum, mu.
        copies: Processes that hold the same matrices and gradients, and share the work.
        constants: Further ones, of a subclass.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float,
        *,
        momentum: float = 0.95,
        copies: DeviceMesh | None = None,
        **constants: float,
    ):
        constants = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, **constants}
        super().__init__(matrices, constants)
        self.copies = copies

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Move all matrices that have gradients once; there can be no `closure`."""
        assert closure is None
        for group in self.param_groups:
            is_broken = getattr(self, FOUND_INF, torch.zeros((), device=group["params"][0].device)) > 0
            shrinkage = torch.where(is_broken, 1.0, 1 - group["lr"] * group["weight_decay"])
            for matrices in batches_of_one_shape([p for p in group["params"] if p.grad is not None]):
                self._move(matrices, group, shrinkage, is_broken)

    def _move(
        self, matrices: list[Tensor], group: dict[str, Any], shrinkage: Tensor, is_broken: Tensor
    ) -> None:
        """Move matrices of one shape, in as many operations as one."""
        weights, momenta = pieces(matrices), self._remembered(MOMENTUM, matrices)
        gradients = torch.stack(pieces(matrix.grad for matrix in matrices if matrix.grad is not None))
        averages = self._advance(momenta, gradients, 1 - group["momentum"], is_broken)
        ahead = gradients.lerp_(averages, group["momentum"])  # Nesterov's view
        del averages  # makes room for the iteration
        directions = orthogonalized(ahead, matrices[0], self.copies)
        updates = self._updates(matrices, directions, group, is_broken)
        torch._foreach_mul_(weights, shrinkage)  # pyright: ignore[reportPrivateImportUsage]
        size = group["lr"] * 0.2 * math.sqrt(max(matrices[0].shape))
        moves = updates.masked_fill_(is_broken, 0).unbind()
        torch._foreach_add_(weights, moves, alpha=-size)  # pyright: ignore[reportPrivateImportUsage]

    def _remembered(self, name: str, matrices: list[Tensor], columns: int | None = None) -> list[Tensor]:
        """Return what is remembered of matrices, as wide as they are or of some columns: zeros at first."""
        for matrix in matrices:
            if name not in self.state[matrix]:
                self.state[matrix][name] = torch.zeros_like(matrix.narrow(1, 0, columns or matrix.shape[1]))
        return pieces(self.state[matrix][name] for matrix in matrices)

    def _advance(self, averages: list[Tensor], values: Tensor, share: float, is_broken: Tensor) -> Tensor:
        """Let moving averages go a share of the way to new values (K, ...); give them stacked."""
        before = torch.stack(averages)
        after = before.lerp(values, share)
        kept = torch.where(is_broken, before, after).unbind()
        torch._foreach_copy_(averages, kept)  # pyright: ignore[reportPrivateImportUsage]
        return after

    def _updates(
        self, matrices: list[Tensor], directions: Tensor, group: dict[str, Any], is_broken: Tensor
    ) -> Tensor:
        """Return what moves the matrices, (K, A, B), as long as their orthogonalized directions."""
        return directions
