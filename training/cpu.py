"""What a run sets on a CPU while it trains: memory, compiled products, number formats, threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .heap import bound_kernel_cache, retain_heap
from .precision import fastest_float32_products
from .recipe import TrainingRecipe


@contextmanager
def prepared_cpu(recipe: TrainingRecipe, device: torch.device) -> Iterator[None]:
    """Make the CPU fast for a run on `device`, as a context.

    Number formats and threads are as before at the end; what memory a process keeps cannot be taken back.
    """
    bound_kernel_cache()
    if recipe.retain_heap and device.type == "cpu":
        retain_heap()
    threads = torch.get_num_threads()
    with fastest_float32_products(device):
        try:
            yield
        finally:
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
