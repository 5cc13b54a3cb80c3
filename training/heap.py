"""Keeping freed memory for the next step.

A training step frees what it allocated and asks for the same again. glibc gives large freed blocks back to
the system, which must clear them page by page when they return: on virtual machines that costs more than many
a product.
"""

import ctypes
import platform

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
"""Names of glibc's settings (malloc.h)."""

TOP_PAD = 256 * 2**20
"""Bytes by which the heap grows at once."""


def retain_heap() -> bool:
    """Let this process keep what it frees, from now on; tell whether the system's library can (glibc can)."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    never = -1
    settings = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, never), (M_TOP_PAD, TOP_PAD))
    answers = [mallopt(name, value) for name, value in settings]
    return answers == [1, 1, 1]
