"""What the processes of a run tell each other while their devices compute.

They travel between hosts, by gloo, so that nobody waits for a device: a GPU that is asked for a number has to
finish all that it was given before.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from typing import cast

import torch
from torch import distributed

PATIENCE = timedelta(hours=12)
"""How long processes wait for the main one, which tokenizes and compares alone: longer than NCCL would."""


def add_up(numbers: Sequence[int]) -> list[int]:
    """Add up numbers, of which every process has as many, over all processes; all of them call this."""
    totals = torch.tensor(numbers, dtype=torch.int64)
    distributed.all_reduce(totals, group=host_group())
    return totals.tolist()


@cache
def host_group() -> distributed.ProcessGroup | None:
    """Return the group in which tensors of the host are exchanged; `None`: that of the launch."""
    if "cpu:gloo" in distributed.get_backend_config():
        return None
    return cast(distributed.ProcessGroup, distributed.new_group(backend="gloo", timeout=PATIENCE))


@cache
def background_group() -> distributed.ProcessGroup | None:
    """Return the group for what a thread does while the run goes on: no order of the two is agreed.

    `None` without a launch. All processes ask for it at the same point of the run.
    """
    if not distributed.is_initialized():
        return None
    return cast(distributed.ProcessGroup, distributed.new_group(backend="gloo", timeout=PATIENCE))
