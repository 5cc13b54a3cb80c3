"""How much of a machine a run uses: its memory, and what share of its peak speed.

The share is the model FLOPs utilization of Chowdhery et al., 2022, section 4.1.

A token takes 6 operations for each weight that it is multiplied with, forward and backward, and in each layer
of attention 12 for each key and channel (appendix B there), whatever the pattern. The vocabulary is
multiplied with targets only. What layers compute again does not count, nor what a teacher computes.
"""

import resource
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ...data.steps.objective import IGNORE, Batch

if TYPE_CHECKING:
    from ...data.steps.batches import Step
    from ..loop import Training

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
        return self.flops_per_token * tokens_per_second / self.peak_flops

    def raised(self, tokens_per_second: float, measured: float) -> "Utilization":
        """Return the same with a peak that a speed does not exceed.

        A peak that was measured while other programs used the machine is too low, and the run shows it. The
        new peak is the largest of the old one, another measurement, and the speed of the run itself.
        """
        return replace(
            self, peak_flops=max(self.peak_flops, measured, self.flops_per_token * tokens_per_second)
        )


def measure_utilization(training: "Training", step: "Step", peak_flops: float | None = None) -> Utilization:
    """Find what a model's speed has to be compared with: its operations per token, and the machine's peak.

    Args:
        training: Its progress keeps the operations: a resumed run would count them in another step.
        step: Some step of the run, as far on the way as is typical of it.
    """
    progress, accelerator = training.progress, training.accelerator
    if progress.flops_per_token is None:
        progress.flops_per_token = count_flops_per_token(training.model, step)
    peak_flops = peak_flops or measure_peak(accelerator.device, accelerator.mixed_precision)
    return Utilization(progress.flops_per_token, peak_flops)


def count_flops_per_token(model: nn.Module, step: "Step") -> float:
    """Count the operations of a token, forward and backward: 6 N + 12 L C T, over all batches of a step.

    N are the weights of products, L C the channels of all layers of attention, T a sequence's length. Where
    an encoder and a decoder read, each half of the weights is taken to read one of the two.
    """
    batches = [part.batch for part in step.parts if part.edges[-1]]
    lengths = torch.cat([each for batch in batches for each in lengths_of(batch)]).double()
    tokens = float(lengths.sum())
    labels = [batch["labels"] for batch in batches if "labels" in batch]
    targets = sum(float((each != IGNORE).sum()) for each in labels) if labels else tokens
    heads = {id(weight): weight.numel() for weight in vocabulary_weights(model)}
    weights = {
        id(weight): weight.numel()
        for module in model.modules()
        if not isinstance(module, nn.Embedding)
        for weight in module.parameters(recurse=False)
        if weight.dim() > 1 and id(weight) not in heads
    }
    queries = (getattr(module, "q_proj", None) for module in model.modules())
    channels = sum(query.out_features for query in queries if isinstance(query, nn.Linear))
    sides = 2 if any("decoder_input_ids" in batch for batch in batches) else 1
    attention = 12 * channels * float((lengths**2).sum()) / tokens
    vocabulary = 6 * sum(heads.values()) * min(targets / tokens, 1.0)
    return (6 * sum(weights.values()) + attention) / sides + vocabulary


def vocabulary_weights(model: nn.Module) -> list[Tensor]:
    """List the matrices whose products are logits over a vocabulary, of a model and of those in it."""
    models = (module for module in model.modules() if isinstance(module, PreTrainedModel))
    heads = (each.get_output_embeddings() for each in models)
    return [head.weight for head in heads if isinstance(head, nn.Linear)]


def lengths_of(batch: Batch) -> list[Tensor]:
    """List the lengths of the sequences that a model reads, on both sides where there are two."""
    found = []
    for ids, bounds in (("input_ids", "cu_seq_lens_k"), ("decoder_input_ids", "cu_seq_lens_q")):
        if ids in batch and bounds in batch:
            found.append(batch[bounds].diff())
        elif ids in batch:
            found.append(torch.full((batch[ids].shape[0],), batch[ids].shape[-1]))
    return found


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


def peak_memory(device: torch.device) -> float:
    """Return the most memory in use so far, in MiB: a GPU's tensors, or the process's resident pages."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    # Beside this file, `getrusage` begins with the peak of the process that started this one.
    if (status := Path("/proc/self/status")).exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 2**10
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
