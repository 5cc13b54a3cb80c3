"""The state of all random generators of a process, as a checkpoint keeps it."""

import random
from typing import Any

import numpy as np
import torch


def random_state() -> dict[str, Any]:
    """Collect the states of this process's generators: Python's, numpy's and torch's on every device."""
    version, numbers, gauss = random.getstate()
    kind, keys, *rest = np.random.get_state()
    return {
        "python": (version, list(numbers), gauss),
        "numpy": (kind, torch.from_numpy(np.array(keys, dtype=np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all(),
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Bring this process's generators to states that `random_state` collected."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
