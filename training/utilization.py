"""How much of a machine's peak the model reaches (model FLOPs utilization; Chowdhery et al., 2022, section
4.1).

The operations are those of every matrix product that a forward and backward pass executes: products of real
tokens only, the vocabulary's only on targets, as the model computes them. Element-wise work is not counted.
"""

import time
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from .batches import Step
from .evaluation import undisturbed_randomness
from .loop import Progress
from .objective import Objective

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
        step: Some step of the run.
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

    Weights, gradients and generators are left as they were.
    """
    batches = step.micro_batches(accelerator.device)
    batch = batches[len(batches) // 2]
    bare = accelerator.unwrap_model(model, keep_torch_compile=False)
    with undisturbed_randomness(accelerator.device), FlopCounterMode(display=False) as counter:
        sum(objective.losses(bare, batch).values(), start=torch.zeros(())).backward()
    bare.zero_grad()
    lengths = [batch[name].numel() for name in ("input_ids", "decoder_input_ids") if name in batch]
    return counter.get_total_flops() / sum(lengths)


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
