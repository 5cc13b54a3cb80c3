"""Checkpoints: everything from which a run continues as if it had never stopped.

    checkpoints/step-00000100/
        model.safetensors   the weights
        ema.safetensors     their moving average, if the run has one; at its end, also mean.safetensors
        optimizer.pt        the optimizer's, schedule's and scaler's state
        optimizer/          of a model in pieces, what each process holds of the optimizer's moments
        random-0.pt         process 0's generators
        window-0.pt         what process 0 has added up for the log's next record
        state.json          progress, scores, recipe, circumstances
        manifest.json       every other file's size and hash

A `Snapshot` is what it will hold, which the run does not change any more: it can go on while that is
written (`checkpoint_writer.py`), to a hidden folder, flushed to the disk and renamed, so that what bears its
name was complete. `recovery.py` tells whether it still is. Nothing in it can run code: it is read by
safetensors, JSON and `weights_only` loading.
"""

import json
import math
import random
import re
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from ...configs.hashes import hash_of
from ...data.files.atomic_writes import (
    delete_folder,
    explaining_a_full_disk,
    partial_path,
    publish_folder,
    removing_on_failure,
)
from ...data.steps.exchange import background_group
from ..devices.environment import environment_of
from ..devices.sharding import each_once, is_sharded, load_whole_optimizer_state, load_whole_weights
from ..loop import Training
from ..optimizers.optimizers import constants_of, give_back
from ..tracking import as_json
from .final_weights import FILES, LAST, MEAN

MANIFEST = "manifest.json"
"""It describes all other files of its folder, and is written last: a folder without it was never finished."""

UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError)
"""What is raised where a damaged JSON file is read, or has another shape than was written."""


def random_state(device: torch.device) -> dict[str, Any]:
    """Collect the states of this process's generators: Python's, numpy's, torch's, and that of its GPU."""
    version, numbers, gauss = random.getstate()
    kind, keys, *rest = np.random.get_state()
    return {
        "python": (version, list(numbers), gauss),
        "numpy": (kind, torch.from_numpy(np.array(keys, dtype=np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state(device)] if device.type == "cuda" else [],
    }


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Bring this process's generators to states that `random_state` collected, on whichever GPU it was.

    A GPU's generator stays where it is if the state is of a run without one.
    """
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["cuda"]:
        torch.cuda.set_rng_state(state["cuda"][0], device)


def is_due(every: float | None, step: int) -> bool:
    """Return whether something is due after a step that is due every so many, which may be no whole number.

    >>> [step for step in range(1, 11) if is_due(5 / 3, step)]
    [2, 4, 5, 7, 9, 10]
    """
    return every is not None and (step + ROUNDING) // every > (step - 1 + ROUNDING) // every


ROUNDING = 1e-6
"""Far less than a step, and far more than the error of a quotient."""

CHECKPOINTS = "checkpoints"
"""Folder of the checkpoints in the run's folder."""

PREFIX = "step-"
"""What the name of a complete checkpoint begins with; the step follows in eight digits or more, alone."""

PIECES = "optimizer"
"""Folder of what is in pieces, in a checkpoint."""

REMEDY = "make room or lower training.keep_checkpoints, and resume; the earlier checkpoints are intact"
"""What to do when there is no room for a checkpoint."""


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint will hold: of this process, and of the main one what all have in common."""

    final: Path
    """Folder of the checkpoint."""
    is_main_process: bool
    """Whether this process is the one that writes what all have in common."""
    group: ProcessGroup | None
    """In which the processes wait for each other; `None` if there is one."""
    own: dict[str, Any]
    """This process's state, by file."""
    weights: dict[str, dict[str, Tensor]]
    """By file; on all processes if they are in pieces."""
    optimizer: dict[str, Any]
    """The optimizer's, schedule's and scaler's state, without what is in pieces."""
    pieces: dict[str, Tensor]
    """What is in pieces of the optimizer's state, by the parameter's number and the name of what it is."""
    about: dict[str, Any]
    """Contents of `state.json`."""

    @property
    def num_bytes(self) -> int:
        """Count the bytes of the weights and the optimizer's state: nearly all that it takes."""
        states = self.optimizer.get("optimizer", {"state": {}})["state"]
        groups = (*self.weights.values(), *states.values(), self.pieces)
        tensors = [each for group in groups for each in group.values() if isinstance(each, Tensor)]
        stored = [each.values() if each.is_sparse else each for each in tensors]
        return sum(each.numel() * each.element_size() for each in stored)

    def write(self) -> Path:
        """Write the checkpoint, and return its folder; every process calls this.

        Raises:
            WriteError: There is no room; what was written of it is deleted.
        """
        partial = partial_path(self.final)
        with explaining_a_full_disk(self.final, self.num_bytes, REMEDY), removing_on_failure(partial):
            if self.is_main_process:
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir(parents=True)
            self._wait_for_everyone()
            for file, state in self.own.items():
                _write(partial / file, state)
            for file, weights in self.weights.items():
                if any(isinstance(weight, DTensor) for weight in weights.values()):
                    from .pieces import write_joined  # most runs have none

                    write_joined(partial / file, weights, self.group)
                else:
                    safetensors.torch.save_file(weights, partial / file)
            if self.pieces:
                from .pieces import write_pieces

                write_pieces(partial / PIECES, self.pieces, self.group)
            if self.is_main_process:
                _write(partial / "optimizer.pt", self.optimizer)
                self._write_about(partial / "state.json")
            self._wait_for_everyone()
            if self.is_main_process:
                write_manifest(partial)
                publish_folder(partial, self.final)
            self._wait_for_everyone()
        return self.final

    def _write_about(self, path: Path) -> None:
        # A checkpoint that was due may be saved again, at the end of a run.
        is_due = self.about["is_due"] or (self.final.exists() and was_due(self.final))
        text = json.dumps(self.about | {"is_due": is_due}, indent=2, allow_nan=False)
        path.write_text(text + "\n", encoding="utf-8")

    def _wait_for_everyone(self) -> None:
        if self.group is not None:
            torch.distributed.barrier(self.group)


def take_snapshot(
    folder: Path,
    training: Training,
    *,
    recipe: dict[str, Any],
    scores: dict[str, float] | None = None,
    criterion: float | None = None,
    is_due: bool = True,
    copies: bool = True,
) -> Snapshot:
    """Hold on to what a checkpoint below `folder` will hold; every process calls this.

    Args:
        recipe: Plain data, kept to document what made these weights.
        scores: What was measured on held-out data at this step.
        criterion: What the best checkpoint is lowest in; the `loss` of the scores if left out.
        is_due: Whether the recipe asks for a checkpoint at this step; otherwise an end or a signal does.
        copies: Whether the run may go on before the checkpoint is written: tensors are copied to the CPU.
    """
    index, is_main = training.accelerator.process_index, training.accelerator.is_main_process
    group, scaler, scores = background_group(), training.accelerator.scaler, scores or {}
    weights, optimizer, pieces = {}, {}, {}
    if is_main or is_sharded(training.bare_model):
        for file, in_place in training.kinds_of_weights.items():
            with in_place:
                found = each_once(training.bare_model.state_dict(keep_vars=True))
                weights[file] = held(found, copies=copies or file != FILES[LAST])
        state = held(training.optimizer.state_dict(), copies=copies)
        for number, values in state["state"].items():
            for name in [name for name, value in values.items() if isinstance(value, DTensor)]:
                pieces[f"{number}.{name}"] = values.pop(name)
        optimizer = {
            "optimizer": state,
            "schedule": held(training.schedule.state_dict(), copies=copies),
            "scaler": scaler.state_dict() if scaler is not None else {},
        }
    about = {
        "progress": training.progress.state_dict(),
        "scores": as_json(scores),
        "criterion": as_json(scores.get("loss") if criterion is None else criterion),
        "is_due": is_due,
        "recipe": recipe,
        "circumstances": environment_of(training.model, training.accelerator),
    }
    generators = random_state(training.accelerator.device)
    own = {f"random-{index}.pt": generators, f"window-{index}.pt": training.metrics.state_dict()}
    final = folder / f"{PREFIX}{training.progress.step:08d}"
    return Snapshot(final, is_main, group, own, weights, optimizer, pieces, about)


def held(value: Any, *, copies: bool) -> Any:
    """Return nested data that no one else changes, except for its tensors; with `copies`, neither these."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True) if copies else value.detach()
    if isinstance(value, dict):
        return {key: held(each, copies=copies) for key, each in value.items()}
    return [held(each, copies=copies) for each in value] if isinstance(value, list) else value


def save_checkpoint(folder: Path, training: Training, **about: Any) -> Path:
    """Write a checkpoint below `folder` at once, and return its folder; every process calls this."""
    return take_snapshot(folder, training, copies=False, **about).write()


def load_checkpoint(checkpoint: Path, training: Training) -> None:
    """Bring a training to the state of a checkpoint; every process calls this.

    Learning rates, decays and the like stay those of the run: see `training/optimizers/optimizers.py`.
    """
    try:
        for file, in_place in training.kinds_of_weights.items():
            with in_place:
                load_whole_weights(training.bare_model, safetensors.torch.load_file(checkpoint / file))
    except RuntimeError as error:
        raise ValueError(f"checkpoint {checkpoint} does not fit the recipe's model: {error}") from None
    states, constants = _read(checkpoint / "optimizer.pt"), constants_of(training.optimizer)
    if (checkpoint / PIECES).exists():
        _add_pieces(checkpoint / PIECES, training.optimizer, states["optimizer"]["state"])
    load_whole_optimizer_state(training.optimizer, states["optimizer"])
    training.schedule.load_state_dict(states["schedule"])
    give_back(training.optimizer, training.schedule, constants)
    if training.accelerator.scaler is not None and states["scaler"]:
        training.accelerator.scaler.load_state_dict(states["scaler"])
    state = read_state(checkpoint)
    training.progress.load_state_dict(state["progress"])
    windows = [
        _read(checkpoint / f"window-{index}.pt") for index in range(state["circumstances"]["processes"])
    ]
    training.metrics.load_state_dicts(
        windows, training.accelerator.process_index, training.accelerator.num_processes
    )
    generators = checkpoint / f"random-{training.accelerator.process_index}.pt"
    if generators.exists():
        restore_random_state(_read(generators), training.accelerator.device)


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
    return next(reversed(checkpoints(folder)), None)


def best(folder: Path) -> Path | None:
    """Find the checkpoint with the lowest criterion; `None` if none was measured."""
    found = {path: _criterion(path) for path in checkpoints(folder)}
    return min((path for path in found if math.isfinite(found[path])), key=found.__getitem__, default=None)


def _criterion(checkpoint: Path) -> float:
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


def _add_pieces(folder: Path, optimizer: Optimizer, moments: dict[int, dict[str, Any]]) -> None:
    from .pieces import read_pieces

    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    found = read_pieces(folder, lambda name: parameters[int(name.partition(".")[0])])
    for name, value in found.items():
        number, _, kind = name.partition(".")
        moments[int(number)][kind] = value


def _write(path: Path, state: Any) -> None:
    # Through a file of Python's: what torch raises without one does not say that the disk is full.
    with path.open("wb") as file:
        torch.save(state, file)


def _read(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def write_manifest(folder: Path) -> None:
    """Describe the files of a folder, and of the folders in it, in its manifest."""
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": hash_of(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    (folder / MANIFEST).write_text(json.dumps({"files": files}, indent=2) + "\n", encoding="utf-8")


def find_damage(folder: Path, *, contents: bool = True) -> str | None:
    """Describe what is wrong with a folder that has, or should have, a manifest; `None` if it is whole.

    Without `contents`, sizes alone are compared, in no time.
    """
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        expected = {name: (file["bytes"], file["sha256"]) for name, file in files.items()}
    except FileNotFoundError:
        return f"{MANIFEST} is missing, so it was never finished"
    except UNREADABLE as error:
        return f"{MANIFEST} cannot be read ({type(error).__name__}: {error})"
    for name, (num_bytes, sha256) in expected.items():
        try:
            found = (folder / name).stat().st_size
            if found != num_bytes:
                return f"{name} has {found:,} bytes instead of {num_bytes:,}"
            if contents and hash_of(folder / name) != sha256:
                return f"{name} has changed since it was written"
        except FileNotFoundError:
            return f"{name} is missing"
        except (OSError, ValueError) as error:
            return f"{name} cannot be read ({error})"
    return None
