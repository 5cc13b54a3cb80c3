"""The retained heap, in processes of their own, since it cannot be undone."""

import platform
import subprocess
import sys

import pytest

from tercet.training import heap

CODE = """
import resource, runpy
if {retain}:
    assert runpy.run_path({path!r})["retain_heap"]()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    b"x" * 2**26
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages_fetched(*, retain: bool) -> int:
    command = [sys.executable, "-c", CODE.format(retain=retain, path=heap.__file__)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_most_freed_memory_is_not_fetched_again():
    assert pages_fetched(retain=True) < 0.5 * pages_fetched(retain=False)
