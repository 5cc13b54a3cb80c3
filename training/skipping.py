"""Steps whose gradient is not finite: the weights are left alone, and the run ends when that goes on.

Asking a GPU whether a number is finite means waiting for it. A fused optimizer therefore looks on the
device (`found_inf`, as for `torch.amp.GradScaler`), the counts stay there, and whether there were too many is
asked only now and then.
"""

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..data.steps.batches import Step

FOUND_INF = "found_inf"
"""Attribute in which torch's fused optimizers look for a number that tells them to do nothing."""

READ_EVERY = {"cpu": 1}
"""Steps after which is asked whether too many were skipped, by type of device; on a CPU asking is free."""

READ_EVERY_ELSEWHERE = 10
"""The same on other devices, which are waited for."""


class NonFiniteError(FloatingPointError):
    """Too many steps in a row had no finite gradient."""

    def __init__(self, message: str, step: Step, metrics: dict[str, Tensor]):
        super().__init__(message)
        self.step = step
        self.metrics = metrics


class NonFiniteSteps:
    """Counts the steps without a finite gradient, in all and in a row; `limit` in a row are too many."""

    def __init__(
        self, limit: int, device: torch.device, skipped: int | Tensor = 0, in_a_row: int | Tensor = 0
    ):
        self.limit = limit
        self.read_every = READ_EVERY.get(device.type, READ_EVERY_ELSEWHERE)
        self.skipped, self.in_a_row = (torch.as_tensor(each, device=device) for each in (skipped, in_a_row))
        self.most_in_a_row = torch.zeros_like(self.in_a_row)

    def step_unless_broken(self, optimizer: Optimizer, grad_norm: Tensor) -> None:
        """Let the optimizer move the weights, unless the norm of their gradient is not finite."""
        norm = grad_norm.detach()
        is_broken = (norm - norm).isnan()  # of an infinite one as well: fewer launches than `isfinite`
        self.skipped = self.skipped + is_broken
        self.in_a_row = torch.where(is_broken, self.in_a_row + 1, 0)
        self.most_in_a_row = torch.maximum(self.most_in_a_row, self.in_a_row)
        # Accelerate wraps the optimizer; the attribute is read from the one inside, and its step is faster.
        inner = getattr(optimizer, "optimizer", optimizer)
        if getattr(optimizer, "scaler", None) is not None:
            optimizer.step()  # in float16 the gradient scaler skips by itself
        elif inner.defaults.get("fused"):
            setattr(inner, FOUND_INF, is_broken.float())
            inner.step()
        elif not is_broken:
            inner.step()

    def require_fewer(
        self, number: int, step: Step, metrics: dict[str, Tensor], *, is_last: bool = False
    ) -> None:
        """Give the run up if too many steps in a row were skipped; a GPU is not asked in every step.

        `is_last`: no step follows, so that it is asked.
        """
        if number % self.read_every and not is_last:
            return
        most = int(self.most_in_a_row)
        if most >= self.limit:
            until = "up to" if int(self.in_a_row) == most else "before"
            raise NonFiniteError(
                f"the gradient was not finite in {most} steps in a row, {until} step {number}: "
                "lower the learning rate, lengthen the warm-up, or train in bf16 or fp32",
                step,
                metrics,
            )
