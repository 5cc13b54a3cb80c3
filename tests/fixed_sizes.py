"""Steps of micro-batches of one size beside ragged ones, and a watch over what a GPU would be waited for."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from traceback import walk_stack

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tercet.data.steps.batches import Step, StepDataset, endless_steps
from tercet.data.steps.objective import brought
from tercet.data.steps.workers import DataCursor
from tercet.modeling.attention import kernels

CPU = torch.device("cpu")


def learned(model, objective, steps: list[StepDataset], number: int = 0):
    """Add up the sums of a step over micro-batches and processes: of terms, and of their gradients."""
    model.zero_grad()
    totals: dict[str, torch.Tensor] = {}
    for process in steps:
        for batch in process[0, number, 0].micro_batches(CPU):
            losses = objective.losses(model, batch)
            sum(losses.values()).backward()
            for name, value in losses.items():
                totals[name] = totals.get(name, torch.zeros(())) + value.detach()
    return totals, {
        name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None
    }


def taken(steps: StepDataset, num_steps: int) -> Iterator[Step]:
    """Take the first steps of a run, epoch after epoch."""
    return islice(endless_steps(steps, DataCursor(0, 0)), num_steps)


def sizes_of(steps: StepDataset) -> dict[int | None, int]:
    """Count names, sizes and types that micro-batches of many steps have, for each objective of a mixture."""
    sizes: dict[int | None, set] = {}
    for step in taken(steps, 200):
        for batch in step.micro_batches(CPU):
            found = (
                (name, (value.shape, value.dtype) if isinstance(value, torch.Tensor) else value)
                for name, value in batch.items()
            )
            sizes.setdefault(batch.get("component"), set()).add(frozenset(found))
    return {component: len(found) for component, found in sizes.items()}


META = torch.device("meta")
"""Where tensors have no numbers, so that whatever reads one back fails: `item`, `nonzero`, `cpu`."""

INDEXING = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default)
COPIES = (torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor)
"""What makes tensors of numbers that the host has."""


class HostWatch(TorchDispatchMode):
    """Counts operators on the meta device, and refuses those for which a GPU would have to be waited for.

    Between host and device only `brought` may copy, which pins memory.
    """

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        """Carry an operation out, and look at it."""
        self.count += 1
        found = function(*arguments, **(options or {}))
        places = {
            each.device for each in tree_leaves((arguments, options, found)) if isinstance(each, torch.Tensor)
        }
        callers = (frame.f_code for frame, _ in walk_stack(None))
        assert len(places) < 2 or brought.__code__ in callers, f"{function} on {places}"
        indices = arguments[1] if function in INDEXING else []
        assert not any(each is not None and each.dtype == torch.bool for each in indices), function
        return found


class CopyWatch(TorchFunctionMode):
    """Refuses to make tensors on a device of numbers that the host has: no operator is seen to copy them."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        """Carry a function out, and look at it."""
        found = function(*arguments, **(options or {}))
        assert function not in COPIES or found.device == CPU, function
        return found


@contextmanager
def watch(monkeypatch) -> Iterator[HostWatch]:
    """Watch over the meta device, for which there is no autocast; attention is one operator."""
    with monkeypatch.context() as patch, CopyWatch(), HostWatch() as found:
        patch.setattr(kernels, "is_tracing", lambda: True)
        patch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
        patch.setattr(torch, "is_autocast_enabled", lambda *_: False)
        yield found


def watched(objective, model, steps: StepDataset, monkeypatch) -> list[int]:
    """Learn from a step's micro-batches on the meta device; counts the operators of each."""
    counts = []
    for batch in steps[0, 0, 0].micro_batches(META):
        with watch(monkeypatch) as found:
            sum(objective.losses(model, batch).values()).backward()
        counts.append(found.count)
    return counts


@contextmanager
def as_on_a_gpu(monkeypatch) -> Iterator[None]:
    """Let tensors not be the CPU's, and attention be one operator."""
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "is_cpu", False)
        patch.setattr(kernels, "is_tracing", lambda: True)
        yield
