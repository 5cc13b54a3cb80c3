"""Checkpoints: everything from which a run continues as if it had never stopped.

    checkpoints/step-00000100/
        model.safetensors   the weights
        optimizer.pt        the optimizer's, schedule's and scaler's state
        random-0.pt         process 0's generators
        state.json          progress, score, recipe, circumstances

A checkpoint is written to a hidden folder, flushed to the disk and renamed, so that what bears its name is
complete. Nothing in it can run code: it is read by safetensors, JSON and `weights_only` loading.
"""

import json
import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from .circumstances import circumstances
from .loop import Progress
from .sharding import (
    each_once,
    load_whole_optimizer_state,
    load_whole_weights,
    whole_optimizer_state,
    whole_weights,
)

PREFIX = "step-"
"""What the name of a complete checkpoint begins with; the step follows in eight digits."""


@dataclass
class RunState:
    """The objects whose state a checkpoint holds."""

    model: nn.Module
    optimizer: Optimizer
    schedule: LRScheduler
    progress: Progress
    accelerator: Accelerator

    @property
    def bare_model(self) -> nn.Module:
        """The model itself, without what compiles it or keeps its copies equal."""
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)


def save_checkpoint(
    folder: Path, run: RunState, *, recipe: dict[str, Any], score: float | None = None
) -> Path:
    """Write a checkpoint below `folder`; every process calls this.

    Args:
        folder: Holds the run's checkpoints.
        run: What to save.
        recipe: Plain data, kept for whoever asks what made these weights.
        score: Held-out loss at this step, if it was measured; the lowest is the best checkpoint.

    Returns:
        The checkpoint's folder, `folder/step-00000100`.
    """
    name = f"{PREFIX}{run.progress.step:08d}"
    partial, final = folder / f".{name}.partial", folder / name
    if run.accelerator.is_main_process:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    run.accelerator.wait_for_everyone()
    _write(partial / f"random-{run.accelerator.process_index}.pt", random_state())
    weights = whole_weights(run.bare_model, run.accelerator)
    moments = whole_optimizer_state(run.optimizer, run.accelerator)
    if run.accelerator.is_main_process:
        _write_shared(partial, run, weights, moments, recipe, score)
    run.accelerator.wait_for_everyone()
    if run.accelerator.is_main_process:
        for path in partial.iterdir():
            _flush(path)
        _flush(partial)
        shutil.rmtree(final, ignore_errors=True)  # left by a run that was resumed from an earlier step
        partial.rename(final)
        _flush(folder)
    run.accelerator.wait_for_everyone()
    return final


def load_checkpoint(checkpoint: Path, run: RunState) -> None:
    """Bring a run to the state of a checkpoint; every process calls this.

    Raises:
        ValueError: The checkpoint belongs to a model of another shape.
    """
    try:
        load_whole_weights(run.bare_model, safetensors.torch.load_file(checkpoint / "model.safetensors"))
    except RuntimeError as error:
        raise ValueError(f"checkpoint {checkpoint} does not fit the recipe's model: {error}") from None
    states = _read(checkpoint / "optimizer.pt")
    load_whole_optimizer_state(run.optimizer, states["optimizer"])
    run.schedule.load_state_dict(states["schedule"])
    if run.accelerator.scaler is not None and states["scaler"]:
        run.accelerator.scaler.load_state_dict(states["scaler"])
    run.progress.load_state_dict(read_state(checkpoint)["progress"])
    generators = checkpoint / f"random-{run.accelerator.process_index}.pt"
    if generators.exists():
        restore_random_state(_read(generators))


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Read what `state.json` tells of a checkpoint: progress, score, recipe, circumstances."""
    return json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))


def checkpoints(folder: Path) -> list[Path]:
    """List the complete checkpoints below a folder, oldest first."""
    return sorted(path for path in folder.glob(f"{PREFIX}*") if (path / "state.json").exists())


def latest(folder: Path) -> Path | None:
    """Find the newest complete checkpoint below a folder."""
    return next(reversed(checkpoints(folder)), None)


def best(folder: Path) -> Path | None:
    """Find the checkpoint with the lowest score; `None` if no score was measured."""
    scores = {path: read_state(path)["score"] for path in checkpoints(folder)}
    return min((path for path in scores if scores[path] is not None), key=lambda p: scores[p], default=None)


def prune(folder: Path, keep: int) -> None:
    """Delete all checkpoints but the `keep` newest and the best, and what unfinished writing left behind."""
    stay = {*checkpoints(folder)[-keep:], best(folder)}
    for path in [*checkpoints(folder), *folder.glob(f".{PREFIX}*.partial")]:
        if path not in stay:
            shutil.rmtree(path)


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


def _write_shared(
    folder: Path,
    run: RunState,
    weights: dict[str, Tensor],
    moments: dict[str, Any],
    recipe: dict[str, Any],
    score: float | None,
) -> None:
    """Write what all processes have in common."""
    safetensors.torch.save_file(each_once(weights), folder / "model.safetensors")
    scaler = run.accelerator.scaler
    states = {
        "optimizer": moments,
        "schedule": run.schedule.state_dict(),
        "scaler": scaler.state_dict() if scaler is not None else {},
    }
    _write(folder / "optimizer.pt", states)
    state = {
        "progress": run.progress.state_dict(),
        "score": score,
        "recipe": recipe,
        "circumstances": circumstances(run.model, run.accelerator),
    }
    (folder / "state.json").write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")


def _write(path: Path, state: Any) -> None:
    torch.save(state, path)


def _read(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def _flush(path: Path) -> None:
    """Wait until a file or a folder's list of files is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
