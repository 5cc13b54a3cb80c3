"""What torch counts of a batch, and what autograd keeps of a pass: plans have to say the same."""

import weakref
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from tercet.data.steps.batches import Part
from tercet.data.steps.objective import Batch, Objective


def flops_of_sequence(model, objective: Objective, parts: Batch | tuple[Part, ...], size: int, tokens: int):
    """Count the operations for each of `size` sequences of a step, by kernels that torch's counter knows."""
    for config in (getattr(module, "config", None) for module in model.modules()):
        if hasattr(config, "_attn_implementation"):
            config._attn_implementation = "eager"
    parts = parts if isinstance(parts, tuple) else (Part(parts, [0, size]),)
    batches = [batch for part in parts for batch in part.micro_batches(torch.device("cpu"))]
    # Without oneDNN, a recurrent layer is a loop of products.
    with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        for batch in batches:
            sum(objective.losses(model, batch).values(), start=torch.zeros(())).backward()
    model.zero_grad()
    return counter.get_total_flops() / size


def bytes_kept(model: torch.nn.Module, run: Callable[[], object]) -> int:
    """Count the bytes of storages, weights left out, that autograd keeps while something runs."""
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        found = run()
    assert found
    return sum(storage.nbytes() for storage in kept.values())


class LiveMemory(TorchDispatchMode):
    """Counts the bytes of all storages that are alive, and the most there ever were."""

    def __init__(self):
        super().__init__()
        self.alive: dict[int, weakref.ref] = {}
        self.now = self.peak = 0

    def watch(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self.alive:
            self.alive[key] = weakref.ref(storage, lambda _: self.forget(key, size))
            self.now += size
            self.peak = max(self.peak, self.now)

    def forget(self, key: int, size: int) -> None:
        del self.alive[key]
        self.now -= size

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(output):
            if isinstance(leaf, Tensor):
                self.watch(leaf)
        return output
