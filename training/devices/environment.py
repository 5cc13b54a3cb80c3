"""What a run's numbers depend on besides its recipe, and what of it a resumed run finds changed.

On as many processes and threads, the same device, number format and libraries, a resumed run equals an
uninterrupted one bit for bit. Where one of them changes, the data and their order stay, and the rest goes on
as nearly as it can. The user sees what changed, one line for each change.
"""

import platform
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import torch
import transformers
from accelerate import Accelerator
from torch import nn

from .precision import fast_bfloat16, precision_of
from .sharding import layout_of

CONSEQUENCES = {
    "processes": "the data and their order stay, sums round and dropout draws otherwise",
    "weights": "sums round otherwise",
    "device": "sums round otherwise, and dropout may draw otherwise",
    "threads": "sums round otherwise",
    "text": "the place in the data stays, and means other examples",
}
"""What a change means, where its name does not say it."""


def environment_of(model: nn.Module, accelerator: Accelerator) -> dict[str, Any]:
    """Describe what a prepared model is trained on."""
    return {
        "processes": accelerator.num_processes,
        "weights": layout_of(model),
        "device": device_name(accelerator.device),
        "threads": torch.get_num_threads(),
        "precision": precision_of(accelerator),
        "fast_bf16": fast_bfloat16(accelerator.device) or "none",
        "attention": attention_of(model, accelerator),
    } | versions()


def attention_of(model: nn.Module, accelerator: Accelerator) -> str | None:
    """Name the kernels of attention by which a model learns, and the layers of each; `None`: it has none."""
    modules = accelerator.unwrap_model(model).modules()  # in pieces, blocks are of another class
    with accelerator.autocast():
        names = Counter(str(block.attention_name) for block in modules if hasattr(block, "attention_name"))
    found = (f"{name}, {number} layer{'s' * (number > 1)}" for name, number in names.items())
    return "; ".join(found) or None


def device_name(device: torch.device) -> str:
    """Name a device so that devices of one name round alike."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({torch.backends.cpu.get_cpu_capability()})" if device.type == "cpu" else device.type


def versions() -> dict[str, str]:
    """Name the versions of what computes."""
    libraries = (accelerate, np, torch, transformers)
    return {"python": platform.python_version()} | {
        library.__name__: library.__version__ for library in libraries
    }


def tell_of_resuming(
    checkpoint: Path,
    state: dict[str, Any],
    model: nn.Module,
    accelerator: Accelerator,
    about: dict[str, Any],
) -> None:
    """Print from which checkpoint a run continues, and what changed since its `state` (`Parts.about`)."""
    if accelerator.is_main_process:
        now = environment_of(model, accelerator)
        changed = changes(state.get("circumstances", now) | state["recipe"], now | about)
        print("\n  ".join([f"resuming from {checkpoint}", *changed]), file=sys.stderr, flush=True)


def changes(earlier: dict[str, Any], present: dict[str, Any]) -> list[str]:
    """Write a line for every value of nested plain data that changed.

    >>> from tercet.training.devices.environment import changes
    >>> changes({"training": {"steps": 5, "seed": 0}}, {"training": {"steps": 9, "seed": 0}})
    ['training.steps: 9, was 5']
    """
    before, now = flat(earlier), flat(present)
    return [
        f"{key}: {now.get(key)}, was {before.get(key)}"
        + (f" ({CONSEQUENCES[key]})" if key in CONSEQUENCES else "")
        for key in {**now, **before}
        if now.get(key) != before.get(key)
    ]


def flat(data: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested dictionaries as one, with dotted keys."""
    result: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            result |= flat(value, f"{above}{key}.")
        else:
            result[f"{above}{key}"] = value
    return result
