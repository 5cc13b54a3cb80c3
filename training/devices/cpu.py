"""What a run sets on a CPU: memory and number formats."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .heap import bound_kernel_cache, retain_heap
from .precision import fast_bfloat16, fastest_float32_products


@contextmanager
def prepared_cpu(device: torch.device, *, retains_heap: bool) -> Iterator[None]:
    """Make the CPU fast for a run on `device`, as a context, and let it keep freed memory for the next step.

    Number formats are as before at the end; what memory a process keeps cannot be taken back.
    """
    bound_kernel_cache(has_few_sizes=device.type == "cpu" and fast_bfloat16(device) is not None)
    if retains_heap and device.type == "cpu":
        retain_heap()
    with fastest_float32_products(device):
        yield
