"""Micro-batches as CUDA graphs: a GPU is told all the work of one at once.

A compiled step of a small model still is hundreds of kernels, and a CPU takes longer to launch them than a
GPU to compute them. Micro-batches of one size do the same work on the same memory, so one of a size is
recorded, forward and backward pass, and those after it are replayed: their tensors are copied to where its
own lay. Random numbers go on where the GPU's generator is, as without a graph.

A recording is not believed before it has given the losses and the gradients of the same micro-batch that is
computed as it is written.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .objective import INDEX, Batch

WARM_UPS = 1
"""Micro-batches of a size that are computed before one is recorded: kernels are loaded and chosen then."""

MOST = 16
"""Sizes that are recorded at most: their memory is shared, and larger ones of few sequences are rare."""

TOLERANCE = 1e-2
"""Relative difference of metrics, and of all gradients, up to which a recording agrees: attention's kernels
add up in another order each time."""

Compute = Callable[[Batch, Mapping[str, Any]], dict[str, Tensor]]
"""Adds a micro-batch's gradients to the parameters', and returns its metrics; the second argument says by
what each sum is multiplied."""


@dataclass(frozen=True)
class Recording:
    """A micro-batch on memory of its own."""

    graph: Any
    """Of CUDA, or what replays like one."""
    batch: dict[str, Tensor]
    factors: dict[str, Tensor]
    metrics: dict[str, Tensor]
    learned: list[nn.Parameter]
    """Parameters that get a gradient."""
    addresses: list[int]
    """Of all parameters."""


class Recorder:
    """Computes micro-batches, and replays those of a size that came before.

    Args:
        model: Its gradients are added up where the first recording has put them.
    """

    def __init__(self, model: nn.Module):
        self.parameters = [*model.parameters()]
        self.gradients: dict[nn.Parameter, Tensor] = {}
        self.seen: Counter[Hashable] = Counter()
        self.recordings: dict[Hashable, Recording] = {}
        self.is_working = True
        self.pool: Any = None

    def compute(self, batch: Batch, factors: Mapping[str, float], compute: Compute) -> dict[str, Tensor]:
        """Add a micro-batch's gradients to the parameters', and return its metrics until the next one."""
        size = signature(batch)
        self.seen[size] += 1
        recording = self.recordings.get(size)
        if recording is not None and recording.addresses == self.addresses():
            return self.replay(recording, batch, factors)
        is_due = recording is not None or (self.seen[size] > WARM_UPS and len(self.recordings) < MOST)
        if not (self.is_working and is_due):
            return compute(batch, factors)
        return self.record(size, batch, factors, compute)

    def record(
        self, size: Hashable, batch: Batch, factors: Mapping[str, float], compute: Compute
    ) -> dict[str, Tensor]:
        """Compute a micro-batch, record it, and keep the recording if a replay gives the same.

        Warns:
            UserWarning: It cannot be recorded, or gives something else: nothing is recorded any more.
        """
        self.recordings.pop(size, None)
        device = self.parameters[0].device
        before = {weight: on_host(weight.grad) for weight in self.parameters}
        for weight in self.parameters:
            weight.grad = None
        randomness = get_randomness(device)
        expected = compute(batch, factors)
        continued = get_randomness(device)
        taught = {weight: on_host(weight.grad) for weight in self.parameters if weight.grad is not None}
        for weight in taught:
            weight.grad = self.gradients.setdefault(weight, torch.empty_like(weight)).zero_()
        found, reason = expected, "they have other losses or gradients"
        try:
            if not all(value.isfinite() for value in expected.values()):
                raise FloatingPointError
            own = {name: value.clone() for name, value in tensors_of(batch).items()}
            scales = {name: torch.tensor(factor, device=device) for name, factor in factors.items()}
            graph, metrics = capture(lambda: compute({**batch, **own}, scales), self)
            recording = Recording(graph, own, scales, metrics, [*taught], self.addresses())
            set_randomness(device, randomness)
            found = self.replay(recording, batch, factors)
            learned = ((self.gradients[weight], gradient) for weight, gradient in taught.items())
            pairs = ([(found[name], each)] for name, each in expected.items())
            if all(difference(each) <= TOLERANCE for each in (*pairs, learned)):
                self.recordings[size], reason = recording, None
        except FloatingPointError:  # nothing can be compared: another one is recorded
            reason = None
        except (RuntimeError, ValueError, TypeError) as error:  # what waits for the GPU cannot be recorded
            reason = str(error).partition("\n")[0]
        if reason is not None:
            warnings.warn(
                f"training.cuda_graphs: steps are computed without CUDA graphs: {reason}", stacklevel=2
            )
            self.is_working = False
            self.recordings.clear()
        if size not in self.recordings:
            found = expected
            for weight, gradient in taught.items():
                self.gradients[weight].copy_(gradient)
            set_randomness(device, continued)
        for weight, gradient in before.items():
            if weight.grad is None and gradient is not None:
                weight.grad = gradient.to(device)
            elif gradient is not None:
                weight.grad += gradient.to(device)
        return found

    def replay(self, recording: Recording, batch: Batch, factors: Mapping[str, float]) -> dict[str, Tensor]:
        """Do what was recorded with another micro-batch of the same size."""
        empty = []
        for weight in recording.learned:
            gradient = self.gradients[weight]
            if weight.grad is None:
                empty.append(gradient)
            elif weight.grad is not gradient:
                gradient.copy_(weight.grad)
            weight.grad = gradient
        if empty:
            torch._foreach_zero_(empty)
        for name, value in tensors_of(batch).items():
            recording.batch[name].copy_(value, non_blocking=True)
        for name, factor in factors.items():
            recording.factors[name].fill_(factor)
        recording.graph.replay()
        return recording.metrics

    def addresses(self) -> list[int]:
        """Tell where the parameters lie."""
        return [weight.data_ptr() for weight in self.parameters]


def capture(compute: Callable[[], dict[str, Tensor]], recorder: Recorder) -> tuple[Any, dict[str, Tensor]]:
    """Record what is computed, on memory that all recordings share: one is replayed at a time."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=recorder.pool, capture_error_mode="thread_local"):
        metrics = compute()
    recorder.pool = graph.pool()
    return graph, metrics


def signature(batch: Batch) -> Hashable:
    """Return what two micro-batches have to share to do the same work: sizes, types and all numbers."""
    tensors = tensors_of(batch)
    sizes = tuple((name, value.shape, value.dtype) for name, value in tensors.items())
    others = tuple((name, repr(batch[name])) for name in batch if name not in tensors and name != INDEX)
    return sizes, others


def tensors_of(batch: Batch) -> dict[str, Tensor]:
    """Return what a device reads of a micro-batch."""
    return {name: value for name, value in batch.items() if isinstance(value, Tensor) and name != INDEX}


def difference(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Measure how far the first tensors of pairs are from the second, relative to the length of all."""
    lengths = [((found - (right := each.to(found.device))).norm(), right.norm()) for found, each in pairs]
    apart, length = (torch.stack(each).norm() for each in zip(*lengths, strict=True))
    return float(apart / length.clamp(min=torch.finfo(length.dtype).tiny))


def on_host(x: Tensor | None) -> Tensor | None:
    """Copy a tensor, if there is one, to where no GPU's memory is needed for it."""
    return None if x is None else x.detach().to("cpu", copy=True)


def get_randomness(device: torch.device) -> Tensor | None:
    """Return the state of a GPU's generator."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def set_randomness(device: torch.device, state: Tensor | None) -> None:
    """Put a generator back."""
    if state is not None:
        torch.cuda.set_rng_state(state, device)
