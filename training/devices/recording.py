"""Micro-batches as CUDA graphs: a GPU is told all the work of one at once.

A compiled step of a small model still is hundreds of kernels, and a CPU takes longer to launch them than a
GPU to compute them. Micro-batches of one size do the same work on the same memory, so one of a size is
recorded, forward and backward pass, and those after it are replayed: their tensors are copied to where its
own lay. Random numbers go on where the GPU's generator is, as without a graph.

A recording is not believed before it has given the losses and the gradients of the same micro-batch that is
computed as it is written.
"""

import gc
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...data.steps.objective import INDEX, Batch
from ...modeling.compatibility import change_each

WARM_UPS = 1
"""Micro-batches of a size that are computed before one is recorded: kernels are loaded and chosen then."""

MOST = 16
"""Sizes that are recorded at most: their memory is shared, and larger ones of few sequences are rare."""

TOLERANCE = 2e-2
"""Relative difference of metrics, and of all gradients, up to which a recording agrees: attention's kernels
add up in another order each time."""

WAITING = "synchronizing CUDA operation"
"""What torch's warning of an operator that waits for the GPU says."""

PROTOTYPE = "Synchronization debug mode"
"""What it says of these warnings."""

Compute = Callable[[Batch, Mapping[str, Any]], dict[str, Tensor]]
"""Adds a micro-batch's gradients to the parameters', and returns its metrics; the second argument says by
what each sum is multiplied."""


@dataclass(frozen=True)
class Recording:
    """A micro-batch on memory of its own."""

    graph: Any
    """CUDA graph, or what replays like one."""
    batch: dict[str, Tensor]
    """What a replay reads."""
    factors: dict[str, Tensor]
    """By what its sums are multiplied."""
    metrics: dict[str, Tensor]
    """What the last replay gave."""
    learned: list[nn.Parameter]
    """Parameters that get a gradient."""
    addresses: list[int]
    """Addresses of all parameters."""


class Recorder:
    """Computes micro-batches, and replays those of a size that came before.

    Args:
        model: Its gradients are added up where the first recording has put them.
    """

    def __init__(self, model: nn.Module):
        self.parameters = [*model.parameters()]
        self.gradients: dict[nn.Parameter, Tensor] = {}
        self.seen: Counter[Hashable] = Counter()
        self.earlier: dict[Hashable, dict[str, Tensor]] = {}
        self.recordings: dict[Hashable, Recording] = {}
        self.is_working = True
        self.pool: Any = None

    def compute(self, batch: Batch, factors: Mapping[str, float], compute: Compute) -> dict[str, Tensor]:
        """Add a micro-batch's gradients to the parameters', and return its metrics until the next one."""
        size = signature(batch)
        self.seen[size] += 1
        if not self.is_working:
            return compute(batch, factors)
        recording = self.recordings.get(size)
        if recording is not None and recording.addresses == self.addresses():
            return self.replay(recording, batch, factors)
        has_room = recording is not None or len(self.recordings) < MOST
        if has_room and self.seen[size] > WARM_UPS:
            return self.record(size, batch, factors, compute)
        if has_room:
            self.earlier[size] = tensors_of(batch)
        return compute(batch, factors)

    def record(
        self, size: Hashable, batch: Batch, factors: Mapping[str, float], compute: Compute
    ) -> dict[str, Tensor]:
        """Compute a micro-batch, record it, and keep the recording if a replay gives the same.

        It is recorded with the numbers of an earlier one, so that whatever is not copied shows.

        Warns:
            UserWarning: It cannot be recorded, or gives something else: nothing is recorded any more.
        """
        self.recordings.pop(size, None)
        device = self.parameters[0].device
        before = {weight: on_host(weight.grad) for weight in self.parameters if weight.grad is not None}
        for weight in self.parameters:
            weight.grad = None
        randomness = get_randomness(device)
        with noting_waits(device) as waits:
            expected = compute(batch, factors)
        continued = get_randomness(device)
        taught = {weight: on_host(weight.grad) for weight in self.parameters if weight.grad is not None}
        for weight in taught:
            weight.grad = self.gradients.setdefault(weight, torch.empty_like(weight)).zero_()
        found, reason = expected, None
        if waits:
            reason = waits[0]
        elif can_be_compared([*expected.values(), *taught.values()]):  # else another one is recorded
            reason = "they have other losses or gradients"
            try:
                own = {
                    name: value.clone() for name, value in self.earlier.pop(size, tensors_of(batch)).items()
                }
                scales = {name: torch.zeros((), device=device) for name in factors}
                graph, metrics = capture(lambda: compute({**batch, **own}, scales), self)
                recording = Recording(graph, own, scales, metrics, [*taught], self.addresses())
                set_randomness(device, randomness)
                found = self.replay(recording, batch, factors)
                learned = ((self.gradients[weight], gradient) for weight, gradient in taught.items())
                pairs = ([(found[name], each)] for name, each in expected.items())
                draws_the_same = same(get_randomness(device), continued)
                if draws_the_same and all(difference(each) <= TOLERANCE for each in (*pairs, learned)):
                    self.recordings[size], reason = recording, None
            except Exception as error:  # whatever a GPU or a compiler raises
                reason = str(error.__context__ or error).partition("\n")[0]
        if size not in self.recordings:
            found = expected
            for weight, gradient in taught.items():
                self.gradients[weight].copy_(gradient)
            set_randomness(device, continued)
        for weight, gradient in before.items():
            if weight.grad is None:
                weight.grad = gradient.to(device)
            else:
                weight.grad.add_(gradient.to(device))
        if reason is not None:
            self.give_up(reason)
        return found

    def give_up(self, reason: str) -> None:
        warnings.warn(f"training.cuda_graphs: steps are computed without CUDA graphs: {reason}", stacklevel=4)
        self.is_working = False
        for kept in (self.recordings, self.gradients, self.earlier):
            kept.clear()

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
            change_each("zero_", empty)
        for name, value in tensors_of(batch).items():
            recording.batch[name].copy_(value, non_blocking=True)
        for name, factor in recording.factors.items():
            factor.fill_(factors[name])
        recording.graph.replay()
        return recording.metrics

    def addresses(self) -> list[int]:
        return [weight.data_ptr() for weight in self.parameters]


def capture(compute: Callable[[], dict[str, Tensor]], recorder: Recorder) -> tuple[Any, dict[str, Tensor]]:
    """Record what is computed, on memory that all recordings share: one is replayed at a time.

    Garbage may hold a graph of autograd of another stream. What fails leaves the stream as it was.
    """
    gc.collect()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph, pool=recorder.pool, capture_error_mode="thread_local"):
            metrics = compute()
    except BaseException:
        torch.cuda.set_stream(stream)
        raise
    recorder.pool = graph.pool()
    return graph, metrics


@contextmanager
def noting_waits(device: torch.device) -> Iterator[list[str]]:
    """Note what waits for a GPU meanwhile: it cannot be recorded, and may not be tried."""
    waits: list[str] = []
    if device.type != "cuda":
        yield waits
        return
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield waits
        finally:
            torch.cuda.set_sync_debug_mode(mode)
    for each in noted:
        if WAITING in str(each.message):
            waits.append(f"something waits for the GPU ({each.filename}:{each.lineno})")
        elif PROTOTYPE not in str(each.message):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def can_be_compared(values: list[Tensor]) -> bool:
    """Return whether losses and gradients are finite, and some of them not 0."""
    lengths = torch.stack([value.detach().float().norm().cpu() for value in values])
    return bool(lengths.isfinite().all() and lengths.any())


def same(left: Tensor | None, right: Tensor | None) -> bool:
    return left is right or (left is not None and right is not None and torch.equal(left, right))


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


def on_host(x: Tensor) -> Tensor:
    """Copy a tensor to where no GPU's memory is needed for it."""
    return x.detach().to("cpu", copy=True)


def get_randomness(device: torch.device) -> Tensor | None:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def set_randomness(device: torch.device, state: Tensor | None) -> None:
    if state is not None:
        torch.cuda.set_rng_state(state, device)
