"""Checkpoints: everything from which a run continues as if it had never stopped.

    checkpoints/step-00000100/
        model.safetensors   the weights
        ema.safetensors     their moving average, if the run has one; at its end, also mean.safetensors
        optimizer.pt        the optimizer's, schedule's and scaler's state
        random-0.pt         process 0's generators
        window-0.pt         what process 0 has added up for the log's next record
        state.json          progress, scores, recipe, circumstances
        manifest.json       every other file's size and hash

A checkpoint is written to a hidden folder, flushed to the disk and renamed, so that what bears its name was
complete. `recovery.py` tells whether it still is. Nothing in it can run code: it is read by safetensors, JSON
and `weights_only` loading.

    step        18   19   20   21   22   23 ...
    gradient    ok   ok   ok   ok   inf  inf
    checkpoint  18                                 due at 18 and 22, with checkpoint_every = 4
    pruned           by 19, which has shown that 18 can be learned from

While steps are skipped, since their gradient is not finite, nothing is saved and nothing deleted: what was
kept before is all that there is to go on from, and the weights of a new checkpoint might be the broken ones.
One that came due meanwhile is saved after the next finite step. A checkpoint pushes others out only once a
step after it was finite.
"""

import json
import math
import random
import re
import shutil
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from .averaging import WeightAverage
from .disk import delete_folder, explaining_a_full_disk, flush, partial_path, removing_on_failure
from .environment import environment_of
from .final_weights import FILES, LAST, MEAN
from .loop import Progress
from .manifest import MANIFEST, UNREADABLE, find_damage, write_manifest
from .metric_accumulator import MetricAccumulator
from .optimizers import constants_of, give_back
from .recipe import TrainingRecipe
from .sharding import (
    each_once,
    load_whole_optimizer_state,
    load_whole_weights,
    whole_optimizer_state,
    whole_weights,
)
from .tracking import as_json


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


@dataclass
class CheckpointRetention:
    """Watches the steps of a run."""

    folder: Path
    """Of the checkpoints."""
    recipe: TrainingRecipe
    """Says how often they are due, and how many stay."""
    is_main_process: bool
    """Whether this process is the one that deletes."""
    grad_norm: Tensor = field(default_factory=lambda: torch.zeros(()))
    """Of the latest step; all processes know it."""
    is_due: bool = False
    is_unproved: bool = False
    """Whether no step after the newest checkpoint was finite yet."""

    @property
    def is_skipping(self) -> bool:
        """Whether the latest step was skipped; a GPU is waited for."""
        return not bool(self.grad_norm.isfinite())

    def is_to_save(self, step: int, grad_norm: Tensor) -> bool:
        """Note a step, delete what it allows to, and tell whether a checkpoint is to be saved after it.

        A GPU is waited for only where something depends on the answer.
        """
        self.grad_norm = grad_norm
        every = self.recipe.checkpoint_every
        self.is_due |= every is not None and step % every == 0
        if not (self.is_due or self.is_unproved) or self.is_skipping:
            return False
        self.prune()
        return self.is_due

    def note_saved(self) -> None:
        """Begin to wait for the next one, and for a step that proves this one."""
        self.is_due, self.is_unproved = False, True

    def is_worth_saving(self, is_finished: bool, has_earlier: bool) -> bool:
        """Return whether a run that ends here saves: not amid skipped steps, if it can go on from one."""
        return is_finished or not has_earlier or not self.is_skipping

    def prune(self) -> None:
        """Delete what is not among the newest, unless steps are being skipped."""
        if self.is_unproved and not self.is_skipping:
            self.is_unproved = False
            if self.is_main_process:
                prune(self.folder, self.recipe.keep_checkpoints, self.recipe.average_checkpoints or 0)


PREFIX = "step-"
"""What the name of a complete checkpoint begins with; the step follows in eight digits or more, alone."""

REMEDY = "make room or lower training.keep_checkpoints, and resume; the earlier checkpoints are intact"
"""What to do when there is no room for a checkpoint."""


@dataclass
class RunState:
    """The objects whose state a checkpoint holds."""

    model: nn.Module
    optimizer: Optimizer
    schedule: LambdaLR
    progress: Progress
    accelerator: Accelerator
    metrics: MetricAccumulator = field(default_factory=MetricAccumulator)
    averages: Mapping[str, WeightAverage] = field(default_factory=dict)
    """Averages of the weights, by their kind."""

    @property
    def num_bytes(self) -> int:
        """Count the bytes of the weights and the optimizer's state: nearly all that a checkpoint takes."""
        states = (value for state in self.optimizer.state.values() for value in state.values())
        tensors = [*self.model.parameters(), *self.model.buffers(), *states]
        own = sum(value.numel() * value.element_size() for value in tensors if isinstance(value, Tensor))
        return own + sum(average.num_bytes for average in self.averages.values())

    @property
    def bare_model(self) -> nn.Module:
        """The model itself, without what compiles it or keeps its copies equal."""
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)

    @property
    def kinds_of_weights(self) -> Mapping[str, AbstractContextManager[None]]:
        """Contexts in which the model has its own weights, or those of an average, by their files."""
        averages = {FILES[kind]: average.in_place() for kind, average in self.averages.items()}
        return {FILES[LAST]: nullcontext()} | averages


def save_checkpoint(
    folder: Path,
    run: RunState,
    *,
    recipe: dict[str, Any],
    scores: dict[str, float] | None = None,
    criterion: float | None = None,
    is_due: bool = True,
) -> Path:
    """Write a checkpoint below `folder`; every process calls this.

    Args:
        folder: Holds the run's checkpoints.
        run: What to save.
        recipe: Plain data, kept to document what made these weights.
        scores: What was measured on held-out data at this step.
        criterion: What the best checkpoint is lowest in; the `loss` of the scores if left out.
        is_due: Whether the recipe asks for a checkpoint at this step; otherwise an end or a signal does.

    Returns:
        The checkpoint's folder, `folder/step-00000100`.

    Raises:
        DiskFullError: There is no room; what was written of it is deleted.
    """
    final = folder / f"{PREFIX}{run.progress.step:08d}"
    partial = partial_path(final)
    with explaining_a_full_disk(final, run.num_bytes, REMEDY), removing_on_failure(partial):
        if run.accelerator.is_main_process:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        run.accelerator.wait_for_everyone()
        _write(partial / f"random-{run.accelerator.process_index}.pt", random_state())
        _write(partial / f"window-{run.accelerator.process_index}.pt", run.metrics.state_dict())
        for file, in_place in run.kinds_of_weights.items():
            with in_place:
                weights = whole_weights(run.bare_model, run.accelerator)
                if run.accelerator.is_main_process:
                    safetensors.torch.save_file(each_once(weights), partial / file)
        moments = whole_optimizer_state(run.optimizer, run.accelerator)
        if run.accelerator.is_main_process:
            is_due |= final.exists() and was_due(final)  # saved again, as at the end of a run
            _write_shared(partial, run, moments, recipe, scores or {}, criterion, is_due)
        run.accelerator.wait_for_everyone()
        if run.accelerator.is_main_process:
            write_manifest(partial)
            _publish(partial, final)
        run.accelerator.wait_for_everyone()
    return final


def _publish(partial: Path, final: Path) -> None:
    """Bring a complete folder to the disk, and then give it its name."""
    for path in [*partial.iterdir(), partial]:
        flush(path)
    if final.exists():
        delete_folder(final)
    partial.rename(final)
    flush(final.parent)


def load_checkpoint(checkpoint: Path, run: RunState) -> None:
    """Bring a run to the state of a checkpoint; every process calls this.

    Learning rates, decays and the like stay those of the run: see `optimizers.py`.

    Raises:
        ValueError: The checkpoint belongs to a model of another shape.
    """
    try:
        for file, in_place in run.kinds_of_weights.items():
            with in_place:
                load_whole_weights(run.bare_model, safetensors.torch.load_file(checkpoint / file))
    except RuntimeError as error:
        raise ValueError(f"checkpoint {checkpoint} does not fit the recipe's model: {error}") from None
    states, constants = _read(checkpoint / "optimizer.pt"), constants_of(run.optimizer)
    load_whole_optimizer_state(run.optimizer, states["optimizer"])
    run.schedule.load_state_dict(states["schedule"])
    give_back(run.optimizer, run.schedule, constants)
    if run.accelerator.scaler is not None and states["scaler"]:
        run.accelerator.scaler.load_state_dict(states["scaler"])
    state = read_state(checkpoint)
    run.progress.load_state_dict(state["progress"])
    windows = [
        _read(checkpoint / f"window-{index}.pt") for index in range(state["circumstances"]["processes"])
    ]
    run.metrics.load_state_dicts(windows, run.accelerator.process_index, run.accelerator.num_processes)
    generators = checkpoint / f"random-{run.accelerator.process_index}.pt"
    if generators.exists():
        restore_random_state(_read(generators))


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Read what `state.json` tells of a checkpoint: progress, scores, recipe, circumstances."""
    return json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))


def checkpoints(folder: Path) -> list[Path]:
    """List the complete checkpoints below a folder, oldest first."""
    return [path for path in named_as_steps(folder) if (path / MANIFEST).exists()]


def named_as_steps(folder: Path) -> list[Path]:
    """List what has a checkpoint's name below a folder, oldest first; `step-best` is a user's."""
    return sorted(
        (path for path in folder.glob(f"{PREFIX}*") if re.fullmatch(rf"{PREFIX}\d{{8,}}", path.name)),
        key=lambda path: int(path.name.removeprefix(PREFIX)),
    )


def latest(folder: Path) -> Path | None:
    """Find the newest complete checkpoint below a folder."""
    return next(reversed(checkpoints(folder)), None)


def best(folder: Path) -> Path | None:
    """Find the checkpoint with the lowest criterion; `None` if none was measured."""
    found = {path: _criterion(path) for path in checkpoints(folder)}
    return min((path for path in found if math.isfinite(found[path])), key=found.__getitem__, default=None)


def _criterion(checkpoint: Path) -> float:
    """Look up what decides which checkpoint is the best; infinite if it was not measured."""
    try:
        state = read_state(checkpoint)
        criterion = state.get("criterion", state["scores"].get("loss"))
        return math.inf if criterion is None else float(criterion)
    except UNREADABLE as error:
        warnings.warn(
            f"checkpoint {checkpoint} is damaged: state.json cannot be read ({error})", stacklevel=2
        )
        return math.inf


def was_due(checkpoint: Path) -> bool:
    """Return whether a checkpoint was due by the recipe, and not left by a signal or an earlier end."""
    return read_state(checkpoint).get("is_due", True)


def holds_mean(checkpoint: Path, number: int) -> bool:
    """Return whether a checkpoint has the mean of the weights of so many checkpoints."""
    averaged = read_state(checkpoint)["recipe"]["training"].get("average_checkpoints")
    return (checkpoint / FILES[MEAN]).exists() and averaged == number


def prune(folder: Path, keep: int, keep_due: int = 0) -> None:
    """Delete all checkpoints but the best, the `keep` newest, and the `keep_due` newest that were due.

    What was interrupted on the way goes, too. A checkpoint that lacks a file, or a part of one, counts for
    none: it makes no other one leave.
    """
    whole = [path for path in checkpoints(folder) if find_damage(path, contents=False) is None]
    due = [path for path in whole if keep_due and was_due(path)]
    stay = {*whole[-keep:], *due[-keep_due:], best(folder)}
    delete_unfinished(folder)
    for path in checkpoints(folder):
        if path not in stay:
            delete_folder(path)


def delete_unfinished(folder: Path) -> None:
    """Delete what is left of checkpoints below a folder whose writing or deletion was interrupted."""
    for path in folder.glob(f".{PREFIX}*"):
        shutil.rmtree(path)


def _write_shared(
    folder: Path,
    run: RunState,
    moments: dict[str, Any],
    recipe: dict[str, Any],
    scores: dict[str, float],
    criterion: float | None,
    is_due: bool,
) -> None:
    """Write what all processes have in common, beside the weights."""
    scaler = run.accelerator.scaler
    states = {
        "optimizer": moments,
        "schedule": run.schedule.state_dict(),
        "scaler": scaler.state_dict() if scaler is not None else {},
    }
    _write(folder / "optimizer.pt", states)
    state = {
        "progress": run.progress.state_dict(),
        "scores": as_json(scores),
        "criterion": as_json(scores.get("loss") if criterion is None else criterion),
        "is_due": is_due,
        "recipe": recipe,
        "circumstances": environment_of(run.model, run.accelerator),
    }
    (folder / "state.json").write_text(json.dumps(state, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _write(path: Path, state: Any) -> None:
    # Through a file of Python's: what torch raises without one does not say that the disk is full.
    with path.open("wb") as file:
        torch.save(state, file)


def _read(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)
