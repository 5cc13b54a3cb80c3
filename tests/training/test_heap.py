"""What is kept in memory, in processes of their own, since it cannot be undone."""

import os
import platform
import subprocess
import sys

import pytest
import torch

CODE = """
import resource
from tercet.training.devices.cpu import retain_heap
if {retain}:
    assert retain_heap()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    b"x" * 2**26
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages_fetched(*, retain: bool) -> int:
    command = [sys.executable, "-c", CODE.format(retain=retain)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_most_freed_memory_is_not_fetched_again():
    assert pages_fetched(retain=True) < 0.5 * pages_fetched(retain=False)


PRODUCTS = """
import resource
from tercet.training.devices.cpu import bound_kernel_cache
def resident():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize()
if {bound}:
    bound_kernel_cache()
import torch
torch.set_num_threads(1)
weight = torch.zeros(64, 64, dtype=torch.bfloat16)
torch.zeros(8, 64, dtype=torch.bfloat16) @ weight
before = resident()
for rows in range(100, 500):
    torch.zeros(rows, 64, dtype=torch.bfloat16) @ weight
print(resident() - before)
"""


def growth_over_many_sizes(*, bound: bool) -> int:
    """Bytes by which a process grows while it multiplies matrices of ever new sizes."""
    command = [sys.executable, "-c", PRODUCTS.format(bound=bound)]
    # Another test's run may have set the variables in this process.
    unset = {name: value for name, value in os.environ.items() if "CACHE_CAPACITY" not in name}
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=unset).stdout)


@pytest.mark.skipif(
    platform.system() != "Linux" or not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="products are not oneDNN's here, or memory cannot be read",
)
def test_products_of_ever_new_sizes_do_not_fill_the_memory():
    assert growth_over_many_sizes(bound=True) < 0.6 * growth_over_many_sizes(bound=False)
