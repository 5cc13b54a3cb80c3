"""What a run says before its first step, in one block, and what it waits for until then.

    model        decoder-tiny: 1,970,880 parameters, vocabulary of 4,096 tokens
    text         2,905,153 tokens in 27,215 examples
    steps        500 of at most 2,048 tokens: 0.35 epochs
    device       cpu (AVX512), 2 threads, bf16 (AMX)
    time         is known after the first steps

How long the run will take is measured on its first steps (`tracking.py`), which no peak and no share of it
can tell as well.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Timer

import torch

from ..configs.messages import counted
from .devices.environment import device_name
from .devices.precision import precision_in_words

PATIENCE = 1.0
"""Seconds of silence before it is said what a run waits for."""


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Say what a run waits for, as a context, if that takes longer than `PATIENCE`."""
    timer = Timer(PATIENCE, print, [f"waiting for {what}"], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def tell_start(lines: Mapping[str, str]) -> None:
    print(as_block(lines), file=sys.stderr, flush=True)


def as_block(lines: Mapping[str, str]) -> str:
    return "\n".join(f"{name:<10} {line}" for name, line in lines.items())


def device_in_words(device: torch.device, precision: str, num_processes: int = 1) -> str:
    """Say what a run computes on, in which format, and why in that."""
    told = [device_name(device)]
    if device.type == "cpu":
        told.append(counted(torch.get_num_threads(), "thread"))
    if num_processes > 1:
        told.append(f"{num_processes} processes")
    return ", ".join([*told, precision_in_words(precision, device)])
