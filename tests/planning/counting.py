"""What training counts of a batch, and what autograd keeps of a pass: plans have to say the same."""

from collections.abc import Callable

import torch
from accelerate import Accelerator

from tercet.training.batches import Part, Step
from tercet.training.objective import Batch, Objective
from tercet.training.utilization import count_flops_per_token
from tercet.training.workers import DataCursor


def flops_of_sequence(model, objective: Objective, parts: Batch | tuple[Part, ...], size: int, tokens: int):
    """Count the operations for each of `size` sequences of a step, which have so many tokens together."""
    parts = parts if isinstance(parts, tuple) else (Part(parts, [0, size]),)
    step = Step(DataCursor(0, 0), parts, {}, size, tokens)
    return count_flops_per_token(model, objective, step, Accelerator(cpu=True)) * tokens / size


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
