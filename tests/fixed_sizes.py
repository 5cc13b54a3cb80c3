"""Steps of micro-batches of one size beside ragged ones, and a watch over what a GPU would be waited for."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tercet.modeling.attention import kernels
from tercet.training.batches import StepDataset

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


def sizes_of(steps: StepDataset) -> list[int]:
    """Count the sizes that micro-batches of the first epoch have, for each objective of a mixture."""
    sizes: dict[int, set] = {}
    for number in range(len(steps.plan(0)[1])):
        for batch in steps[0, number, 0].micro_batches(CPU):
            of_tensors = {
                name: value.shape for name, value in batch.items() if isinstance(value, torch.Tensor)
            }
            longest = {name: value for name, value in batch.items() if name.startswith("max_length")}
            sizes.setdefault(batch.get("component", 0), set()).add(str(of_tensors | longest))
    return [len(found) for found in sizes.values()]


WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "unique_consecutive", "_unique2")
"""Operations whose results, or their sizes, the host has to know."""


class HostWatch(TorchDispatchMode):
    """Collects the operations for which a GPU would have to be waited for, and counts all."""

    def __init__(self):
        super().__init__()
        self.found: list[str] = []
        self.count = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        """Look at an operation, and carry it out."""
        self.count += 1
        indices = arguments[1] if function in INDEXING else []
        is_selection = any(each is not None and each.dtype == torch.bool for each in indices)
        if is_selection or function.overloadpacket.__name__ in WAITS:
            self.found.append(str(function))
        return function(*arguments, **(options or {}))


INDEXING = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default)


@contextmanager
def as_on_a_gpu(monkeypatch) -> Iterator[None]:
    """Let tensors not be the CPU's, and attention be one operator."""
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "is_cpu", False)
        patch.setattr(kernels, "is_tracing", lambda: True)
        yield


def watched(model, objective, steps: StepDataset, monkeypatch) -> list[HostWatch]:
    """Watch the micro-batches of a step."""
    batches = steps[0, 0, 0].micro_batches(CPU)
    found = []
    with as_on_a_gpu(monkeypatch):
        for batch in batches:
            with HostWatch() as watch:
                sum(objective.losses(model, batch).values()).backward()
            found.append(watch)
    return found
