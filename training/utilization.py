"""How much of a machine's peak the model reaches (model FLOPs utilization; Chowdhery et al., 2022, section
4.1).

The operations are those of every matrix product that a forward and backward pass executes: products of real
tokens only, the vocabulary's only on targets, as the model computes them. Element-wise work is not counted.

torch's counter does not know recurrent layers, each of which is one fused operator. Every step
multiplies the matrices of a layer with an input and a state, so that a layer costs two operations for each
weight and position forward, and twice as many backward. Where an LSTM is not fused, torch counts its products
by itself.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, register_flop_formula

from .batches import Step
from .compatibility import CUDNN_RNN
from .evaluation import undisturbed_randomness
from .gradient_checkpointing import computing_again, counting_again
from .loop import Progress
from .objective import Batch, Objective, configs_in

Shape = Sequence[int]

ATEN = torch.ops.aten


def count_layer(x: Shape, *weights: Shape) -> int:
    """Count the operations of a layer with matrices of these shapes, forward, on inputs of shape `x`.

    Packed inputs (N, C) cost what those of as many positions (T, B, C) do.

    >>> count_layer((7, 3, 10), (40, 10), (40, 10), (40,)), count_layer((21, 10), (40, 10), (40, 10), (40,))
    (33600, 33600)
    """
    return 2 * math.prod(x[:-1]) * sum(shape[0] * shape[1] for shape in weights if len(shape) == 2)


@register_flop_formula(ATEN.mkldnn_rnn_layer)
def of_cpu_layer(x: Shape, input_weight: Shape, state_weight: Shape, *_: Any, **__: Any) -> int:
    """Count one layer of oneDNN, forward."""
    return count_layer(x, input_weight, state_weight)


@register_flop_formula(ATEN.mkldnn_rnn_layer_backward)
def of_cpu_layer_backward(x: Shape, input_weight: Shape, state_weight: Shape, *_: Any, **__: Any) -> int:
    """Count one layer of oneDNN, backward."""
    return 2 * count_layer(x, input_weight, state_weight)


def of_gpu_layers(x: Shape, weights: Sequence[Shape], *_: Any, **__: Any) -> int:
    """Count all layers of cuDNN, forward."""
    return count_layer(x, *weights)


def of_gpu_layers_backward(x: Shape, weights: Sequence[Shape], *_: Any, **__: Any) -> int:
    """Count all layers of cuDNN, backward."""
    return 2 * count_layer(x, *weights)


for operator, formula in zip(CUDNN_RNN, (of_gpu_layers, of_gpu_layers_backward), strict=True):
    if operator is not None:
        register_flop_formula(operator)(formula)


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
        """Return the share of the peak that a device's speed is."""
        return self.flops_per_token * tokens_per_second / self.peak_flops

    def raised(self, tokens_per_second: float, measured: float) -> "Utilization":
        """Return the same with a peak that a speed does not exceed.

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
    they were. What layers compute again does not count, as in other measures of utilization (MFU).
    """
    bare = accelerator.unwrap_model(model, keep_torch_compile=False)
    flops = tokens = 0.0
    for batches in (list(part.micro_batches(accelerator.device)) for part in step.parts if part.edges[-1]):
        batch = batches[len(batches) // 2]
        counter, undisturbed = FlopCounterMode(display=False), undisturbed_randomness(accelerator.device)
        with (
            undisturbed,
            attending_by_groups(bare),
            computing_again(bare),
            counting_again(bare) as again,
            counter,
        ):
            sum(objective.losses(bare, batch).values(), start=torch.zeros(())).backward()
        bare.zero_grad()
        num_tokens = sum(map(count_tokens, batches))
        counted = counter.get_total_flops() - sum(each.get_total_flops() for each in again)
        flops += counted / count_tokens(batch) * num_tokens
        tokens += num_tokens
    return flops / tokens


@contextmanager
def attending_by_groups(model: nn.Module) -> Iterator[None]:
    """Let packed sequences attend by groups meanwhile, on a GPU too.

    torch 2.11's counter knows neither flex attention nor a flash kernel's shared heads. So a pattern that
    leaves out pairs has the operations of all pairs on a GPU, and too high a utilization.
    """
    configs = [config for config in configs_in(model) if hasattr(config, "_attn_implementation")]
    kept = [config._attn_implementation for config in configs]
    try:
        for config in configs:
            config._attn_implementation = "eager"
        yield
    finally:
        for config, implementation in zip(configs, kept, strict=True):
            config._attn_implementation = implementation


def count_tokens(batch: Batch) -> int:
    """Count the tokens that a model reads of a batch, on both sides where there are two."""
    return sum(batch[name].numel() for name in ("input_ids", "decoder_input_ids") if name in batch)


def measure_peak(device: torch.device, precision: str) -> float:
    """Time a large matrix product in a format of `DTYPES`: floating-point operations per second."""
    width = WIDTHS.get(device.type, 2048)
    generator = torch.Generator(device).manual_seed(0)  # of equal numbers, a GPU computes faster products
    left, right = torch.randn(2, width, width, device=device, dtype=DTYPES[precision], generator=generator)
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
