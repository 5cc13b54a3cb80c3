"""Steps whose gradient is not finite: the weights are left alone, and the run ends when that goes on.

Asking a GPU whether a number is finite means waiting for it. A fused optimizer therefore looks on the
device (`found_inf`, as for `torch.amp.GradScaler`), and the counts are read only now and then.
"""

import torch
from torch import Tensor
from torch.optim import Optimizer

from .batches import Step

FOUND_INF = "found_inf"
"""Attribute in which torch's fused optimizers look for a number that tells them to do nothing."""

READ_EVERY = 10
"""Steps between two readings of the counts on a GPU; on a CPU, where reading is free, every step is read."""


class NonFiniteError(FloatingPointError):
    """Too many steps in a row had no finite gradient."""

    def __init__(self, message: str, step: Step, metrics: dict[str, Tensor]):
        """Keep the data of the last of them, and what came of them."""
        super().__init__(message)
        self.step = step
        self.metrics = metrics


class NonFiniteSteps:
    """Counts the steps without a finite gradient, in all and in a row."""

    def __init__(self, limit: int, device: torch.device, in_a_row: int = 0):
        """Begin with the latest `in_a_row` steps of an earlier run; `limit` in a row are too many."""
        self.limit = limit
        self.read_every = 1 if device.type == "cpu" else READ_EVERY
        self.unread = torch.zeros((), device=device)
        self.known_in_a_row = in_a_row
        self.in_a_row = torch.full((), float(in_a_row), device=device)

    def step_unless_broken(self, optimizer: Optimizer, grad_norm: Tensor) -> None:
        """Let the optimizer move the weights, unless the norm of their gradient is not finite."""
        is_broken = 1 - grad_norm.detach().isfinite().float()
        self.unread += is_broken
        self.in_a_row = (self.in_a_row + 1) * is_broken
        # Accelerate wraps the optimizer; the attribute is read from the one inside, and its step is faster.
        inner = getattr(optimizer, "optimizer", optimizer)
        if getattr(optimizer, "scaler", None) is not None:
            optimizer.step()  # in float16 the gradient scaler skips by itself
        elif inner.defaults.get("fused"):
            setattr(inner, FOUND_INF, is_broken)
            inner.step()
        elif not is_broken:
            inner.step()

    def count(self, number: int, step: Step, metrics: dict[str, Tensor]) -> int:
        """Return how many steps were skipped since the last reading; in steps without a reading, 0.

        Args:
            number: Steps of the run so far.
            step: The data of the latest.
            metrics: What came of them.

        Raises:
            NonFiniteError: The latest `limit` steps were all skipped.
        """
        if number % self.read_every:
            return 0
        self.known_in_a_row = int(self.in_a_row)
        if self.known_in_a_row >= self.limit:
            raise NonFiniteError(
                f"the gradient was not finite in {self.known_in_a_row} steps in a row, up to step {number}: "
                "lower the learning rate, lengthen the warm-up, or train in bf16 or fp32",
                step,
                metrics,
            )
        unread = int(self.unread)
        self.unread.zero_()
        return unread
