"""What a run sets on a CPU: number formats, and what memory it keeps between steps.

Between steps it keeps freed memory: a training step frees what it allocated and asks for the same again.
glibc gives large freed blocks back to the system, which must clear them page by page when they return. On
virtual machines that costs more than many a product.

It keeps few compiled products. oneDNN compiles every product for its sizes and keeps the last 1024. Packed
batches have other sizes in every step, so that it would keep gigabytes: measured, a run of 600 steps grew to
7.8 GiB. In bfloat16 the model rounds the sizes up (`modeling/stack.py`), so that few products serve most
steps, if they are kept: a fine-tuning needs about 430 in 40 steps, of 0.6 to 0.8 MiB each, and would compile
twice as many, in place of those that it has just forgotten, if 128 were kept.
"""

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

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


M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX, M_ARENA_MAX = -1, -2, -4, -8
"""Names of glibc's settings (malloc.h)."""

TOP_PAD = 256 * 2**20
"""Bytes by which the heap grows at once."""


def retain_heap() -> bool:
    """Let this process keep what it frees, from now on; tell whether the system's library can (glibc can)."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    never = -1
    # One arena, since no other thread can use what one keeps in its arena.
    settings = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, never), (M_TOP_PAD, TOP_PAD), (M_ARENA_MAX, 1))
    return all(mallopt(name, value) for name, value in settings)


KEPT_PRODUCTS, KEPT_OF_FEW_SIZES = 128, 512
"""Compiled products that oneDNN keeps, where sizes vary and where they are rounded up."""


def bound_kernel_cache(*, has_few_sizes: bool = False) -> None:
    """Let oneDNN keep few compiled products, unless its variables are set; before the process's first one."""
    number = KEPT_OF_FEW_SIZES if has_few_sizes else KEPT_PRODUCTS
    for variable in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(variable, str(number))
