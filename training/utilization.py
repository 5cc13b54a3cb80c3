"""How much of a machine's peak the model reaches (model FLOPs utilization; Chowdhery et al., 2022, section
4.1).

The operations are those of every matrix product that a forward and backward pass executes: products of real
tokens only, the vocabulary's only on targets, as the model computes them. Element-wise work is not counted.
"""

import time
from dataclasses import dataclass, replace

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from . import recurrent_flops  # noqa: F401  registers formulas
from .batches import Step
from .evaluation import undisturbed_randomness
from .loop import Progress
from .objective import Batch, Objective

WIDTHS = {"cpu": 2048, "cuda": 8192}
"""Rows and columns of the product whose speed is taken for the peak."""

REPETITIONS = 5
"""How often it is repeated; the fastest counts."""

DTYPES = {"no": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Format of the products under accelerate's names for mixed precision."""


@dataclass(frozen=True)
class Utilization:
    """What turns tokens per second into a share of the machine's peak."""

    flops_per_token: float
    """Floating-point operations that training spends on a token."""
    peak_flops: float
    """Floating-point operations per second that one process's device can do."""

    def share(self, tokens_per_second: float) -> float:
        """Give the share of the peak that a device's speed is."""
        return self.flops_per_token * tokens_per_second / self.peak_flops

    def raised(self, tokens_per_second: float, measured: float) -> "Utilization":
        """Give the same with a peak that a speed does not exceed.

        A peak that was measured while other programs used the machine is too low, and the run shows it. The
        new peak is the largest of the old one, another measurement, and the speed of the run itself.
        """
        return replace(
            self, peak_flops=max(self.peak_flops, measured, self.flops_per_token * tokens_per_second)
        )


def measure_utilization(
    model: nn.Module,
    objective: Objective,
    step: Step,
    accelerator: Accelerator,
    progress: Progress,
    peak_flops: float | None = None,
) -> Utilization:
    """Find what a model's speed has to be compared with: its operations per token, and the machine's peak.

    Args:
        model: Prepared by `accelerator`.
        objective: Computes the losses.
        step: Some step of the run, as far on the way as is typical of it.
        accelerator: Owns device and precision.
        progress: Keeps the operations, which a resumed run would otherwise count in another step.
        peak_flops: The machine's peak, if it is known.
    """
    if progress.flops_per_token is None:
        progress.flops_per_token = count_flops_per_token(model, objective, step, accelerator)
    peak_flops = peak_flops or measure_peak(accelerator.device, accelerator.mixed_precision)
    return Utilization(progress.flops_per_token, peak_flops)


def count_flops_per_token(
    model: nn.Module, objective: Objective, step: Step, accelerator: Accelerator
) -> float:
    """Count the operations of a middle micro-batch, forward and backward, and divide by its tokens.

    Of a mixture of objectives it is the mean over their tokens. Weights, gradients and generators are left as
    they were.
    """
    bare = accelerator.unwrap_model(model, keep_torch_compile=False)
    flops = tokens = 0.0
    for batches in (list(part.micro_batches(accelerator.device)) for part in step.parts if part.edges[-1]):
        batch = batches[len(batches) // 2]
        with undisturbed_randomness(accelerator.device), FlopCounterMode(display=False) as counter:
            sum(objective.losses(bare, batch).values(), start=torch.zeros(())).backward()
        bare.zero_grad()
        num_tokens = sum(map(count_tokens, batches))
        flops += counter.get_total_flops() / count_tokens(batch) * num_tokens
        tokens += num_tokens
    return flops / tokens


def count_tokens(batch: Batch) -> int:
    """Count the tokens that a model reads of a batch, on both sides where there are two."""
    return sum(batch[name].numel() for name in ("input_ids", "decoder_input_ids") if name in batch)


def measure_peak(device: torch.device, precision: str) -> float:
    """Time a large matrix product in a format of `DTYPES`: floating-point operations per second."""
    width = WIDTHS.get(device.type, 2048)
    left, right = torch.ones(2, width, width, device=device, dtype=DTYPES[precision])
    times = []
    for _ in range(REPETITIONS):
        wait_for(device)
        start = time.perf_counter()
        torch.mm(left, right)
        wait_for(device)
        times.append(time.perf_counter() - start)
    return 2 * width**3 / min(times)


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has finished its queue."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
