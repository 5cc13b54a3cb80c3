"""What the processes of a run tell each other while their devices compute.

They travel between hosts, by gloo, so that nobody waits for a device: a GPU that is asked for a number has to
finish all that it was given before.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import cast

import numpy as np
import torch
from torch import distributed

LOST = ("Connection closed by peer", "Connection reset by peer", "remote process exited")
"""What gloo and NCCL say where another process has ended."""

TIMED_OUT = ("Timed out waiting", "timing out", "Timeout waiting")
"""What gloo and NCCL say where another process does not answer."""

PATIENCE = timedelta(hours=12)
"""How long processes wait for one that works alone: that tokenizes, or writes a report."""


class Timeout:
    """How long processes wait in an exchange of all of them: `training.timeout`."""

    value = timedelta(minutes=30)


def add_up(numbers: Sequence[int]) -> list[int]:
    """Add up numbers, of which every process has as many, over all processes; all of them call this."""
    totals = torch.tensor(numbers, dtype=torch.int64)
    distributed.all_reduce(totals, group=host_group())
    return totals.tolist()


def place_among_processes() -> tuple[int, int]:
    """Return this process's number in the launch, and how many there are: (0, 1) without a launch."""
    if not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def is_restarted() -> bool:
    """Return whether torchrun has started one of the processes again; all of them call this."""
    count = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    return add_up([count])[0] > 0 if distributed.is_initialized() else count > 0


def gather_arrays(arrays: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """Return the arrays of every process, in the order of their numbers; all of them call this.

    Args:
        arrays: This process's, flat; on the others, as many of the same types, each of any length.
    """
    size = place_among_processes()[1]
    if size == 1:
        return [[*arrays]]
    own = torch.from_numpy(np.concatenate([np.ascontiguousarray(array).view(np.uint8) for array in arrays]))
    with explaining_lost_processes():
        lengths = _gather(torch.tensor([array.nbytes for array in arrays]), size)  # (processes, arrays)
        padded = own.new_zeros(int(lengths.sum(dim=1).max()))
        padded[: len(own)] = own
        everything = _gather(padded, size).numpy()
    found = []
    for row, edges in zip(everything, lengths.cumsum(dim=1)[:, :-1].tolist(), strict=True):
        total = int(lengths[len(found)].sum())
        parts = np.split(row[:total], edges)
        found.append([part.copy().view(array.dtype) for part, array in zip(parts, arrays, strict=True)])
    return found


def _gather(tensor: torch.Tensor, size: int) -> torch.Tensor:
    stacked = tensor.new_empty(size, *tensor.shape)
    distributed.all_gather([*stacked], tensor, group=host_group())
    return stacked


@contextmanager
def explaining_lost_processes() -> Iterator[None]:
    """Say that another process has ended or does not answer, if the code inside fails for it."""
    try:
        yield
    except RuntimeError as error:
        if any(sign in str(error) for sign in LOST):
            raise ConnectionError(
                "another process of the run has ended, and its own last lines say why; the run goes on from "
                "its last checkpoint when the launcher starts it again, or with --resume"
            ) from error
        if any(sign in str(error) for sign in TIMED_OUT):
            raise TimeoutError(
                f"another process of the run has not answered for {Timeout.value.total_seconds():g} s "
                "(training.timeout): the run ends; start it again with --resume, if the launcher does not"
            ) from error
        raise


def wait_for_everyone() -> None:
    """Wait until all processes are here, however long one of them works alone."""
    if distributed.is_initialized():
        distributed.barrier(group=patient_group())


@contextmanager
def main_first() -> Iterator[None]:
    """Let the main process do what is inside before the others: they find in the cache what it has made."""
    is_main = place_among_processes()[0] == 0
    if not is_main:
        wait_for_everyone()
    yield
    if is_main:
        wait_for_everyone()


@cache
def host_group() -> distributed.ProcessGroup | None:
    """Return the group in which tensors of the host are exchanged; `None`: that of the launch."""
    if "cpu:gloo" in distributed.get_backend_config():
        return None
    return new_group(Timeout.value)


@cache
def patient_group() -> distributed.ProcessGroup:
    """Return the group in which processes wait for one that works alone."""
    return new_group(PATIENCE)


def new_group(timeout: timedelta) -> distributed.ProcessGroup:
    """Make a group of all processes that exchanges tensors of the host; all of them call this."""
    return cast(distributed.ProcessGroup, distributed.new_group(backend="gloo", timeout=timeout))


@cache
def background_group() -> distributed.ProcessGroup | None:
    """Return the group for what a thread does while the run goes on: no order of the two is agreed.

    `None` without a launch. All processes ask for it at the same point of the run.
    """
    if not distributed.is_initialized():
        return None
    return new_group(Timeout.value)
