"""Programs of Python that the library starts. None of them imports what lies in the current folder.

`python -c` and `python -m` look for modules in the current folder first. A folder of somebody else may hold a
`torch.py`, which would run in place of the library.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from subprocess import Popen
from typing import Any

SAFE_PATH = "PYTHONSAFEPATH"
"""Variable of the environment that means the same as Python's option -P."""

Program = Popen[Any]
"""A program that was started."""


def start_python(arguments: Sequence[str], **options: Any) -> Program:
    """Start Python without the current folder among those of its modules; `options` are those of `Popen`."""
    return Popen([sys.executable, "-P", *arguments], **options)


@contextmanager
def safe_path() -> Iterator[None]:
    """Let whatever is started as Python have no modules of the current folder either, as a context.

    It is for the processes that libraries start, such as the servers and trackers of `multiprocessing`.
    """
    earlier = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if earlier is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = earlier
