"""What a run sets on a CPU: memory and number formats.

How long threads spin while they wait for each other is bounded beforehand, in `tercet/__main__.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch

from .heap import bound_kernel_cache, retain_heap
from .precision import fast_bfloat16, fastest_float32_products


class KeepsHeap(Protocol):
    """What a recipe says of memory on a CPU."""

    @property
    def retain_heap(self) -> bool:
        """Whether freed memory is kept for the next step."""
        ...


@contextmanager
def prepared_cpu(recipe: KeepsHeap, device: torch.device) -> Iterator[None]:
    """Make the CPU fast for a run on `device`, as a context.

    Number formats are as before at the end; what memory a process keeps cannot be taken back.
    """
    bound_kernel_cache(has_few_sizes=device.type == "cpu" and fast_bfloat16(device) is not None)
    if recipe.retain_heap and device.type == "cpu":
        retain_heap()
    with fastest_float32_products(device):
        yield
