"""From which checkpoint a run continues: the newest that still is as it was written."""

import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from ..devices.environment import flat
from .checkpoint import (
    UNREADABLE,
    checkpoints,
    delete_unfinished,
    find_damage,
    latest,
    named_as_steps,
    read_state,
    was_due,
)

DAMAGED = "damaged-"
"""Stands before the name of a checkpoint that was set aside."""


UNCHANGEABLE = ("seed", "tokens_per_step", "optimizer.kind", "optimizer.layer_decay", "ema_decay")
"""Keys of `training` that must be those of the checkpoint. Stages that are still to come may change."""


class DamagedCheckpointError(RuntimeError):
    """A run cannot be continued: none of its checkpoints is as it was written."""


def starting_point(folder: Path, accelerator: Accelerator, *, resume: bool) -> Path | None:
    """Find the checkpoint below a folder from which a run starts, if any; every process calls this."""
    if resume:
        return newest_whole(folder, accelerator)
    if earlier := named_as_steps(folder):
        raise ValueError(
            f"{folder} has {earlier[-1].name} of an earlier run: resume it, or choose another folder"
        )
    return None


def newest_whole(folder: Path, accelerator: Accelerator) -> Path | None:
    """Find the newest checkpoint below a folder that equals its manifest; every process calls this.

    Damaged ones that are newer are named in a warning and get another name, with which they no longer count
    as checkpoints; only what was never finished is deleted. Without any checkpoint, the answer is `None`.
    """
    found = [_search(folder) if accelerator.is_main_process else (None, {})]
    checkpoint, damages = broadcast_object_list(found)[0]
    if checkpoint is None:
        if not damages:
            return None
        listed = "; ".join(f"{path.name}: {damage}" for path, damage in damages.items())
        raise DamagedCheckpointError(
            f"every checkpoint in {folder} is damaged ({listed}): bring back a copy of one, or begin anew in "
            "another folder"
        )
    if accelerator.is_main_process:
        for path, damage in damages.items():
            aside = _set_aside(path)
            warnings.warn(
                f"checkpoint {path} is damaged: {damage}; it is renamed to {aside.name}, and the run "
                f"continues from {checkpoint.name}",
                stacklevel=2,
            )
    return checkpoint


def precision_kept(folder: Path) -> str | None:
    """Look up in which precision the newest checkpoint below a folder was made; `None` without one."""
    if (newest := latest(folder)) is None:
        return None
    with suppress(*UNREADABLE):
        return read_state(newest)["circumstances"]["precision"]
    return None


def newest_due(folder: Path, number: int, before: int, accelerator: Accelerator) -> list[Path]:
    """List the newest checkpoints before a step that were due by the recipe; every process calls this.

    Those that a signal or an earlier end of the run left do not count. Damaged ones are left out. A
    warning tells of those, and if there are fewer.
    """
    found: list[Path] = []
    if accelerator.is_main_process:
        for path in reversed(checkpoints(folder)):
            state = read_state(path)
            if len(found) == number or not was_due(path) or state["progress"]["step"] >= before:
                continue
            if (damage := find_damage(path)) is None:
                found.append(path)
            else:
                warnings.warn(f"checkpoint {path} is damaged: {damage}; it is left out", stacklevel=2)
        if len(found) < number:
            warnings.warn(f"{folder} has {len(found)} checkpoints to average, not {number}", stacklevel=2)
    return broadcast_object_list([found])[0]


def _search(folder: Path) -> tuple[Path | None, dict[Path, str]]:
    # Looks at the newest checkpoint first, until one is whole.
    delete_unfinished(folder)
    damages: dict[Path, str] = {}
    for path in reversed(named_as_steps(folder)):
        if (damage := find_damage(path)) is None:
            return path, damages
        damages[path] = damage
    return None, damages


def _set_aside(path: Path) -> Path:
    aside = path.with_name(f"{DAMAGED}{path.name}")
    shutil.rmtree(aside, ignore_errors=True)
    return path.rename(aside)


def require_resumable(checkpoint: Path, present: dict[str, Any]) -> None:
    """Refuse a recipe whose `training` part a checkpoint cannot be continued with.

    Its place in the data, its optimizer's states and groups, and its averages must keep their meaning. What
    else differs, and other stages after the checkpoint's step, takes effect from the next step on.
    """
    state, now = read_state(checkpoint), flat(present)
    earlier = flat(state["recipe"]["training"])
    for key in UNCHANGEABLE:
        if earlier.get(key) != now[key]:
            raise ValueError(
                f"training.{key} = {now[key]}, but {checkpoint} was made with {earlier.get(key)}: "
                "resume with that value, or start again in another folder"
            )
    step = state["progress"]["step"]
    if stages_before(step, earlier.get("stages")) != stages_before(step, now["stages"]):
        raise ValueError(
            f"training.stages = {now['stages']}, but the {step} steps of {checkpoint} were made with "
            f"{earlier.get('stages')}: change later steps alone, or start again in another folder"
        )
    if step > now["steps"]:
        raise ValueError(
            f"training.steps = {now['steps']}, but {checkpoint} has taken {step} steps: "
            "resume with at least as many, or start again in another folder"
        )


def stages_before(step: int, stages: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Return the parts of a recipe's stages that lie in the first steps of a run.

    >>> stages_before(30, [{"steps": 20, "tokens_per_step": 100}, {"steps": 20, "tokens_per_step": 200}])
    [{'steps': 20, 'tokens_per_step': 100}, {'steps': 10, 'tokens_per_step': 200}]
    """
    parts = []
    for stage in stages or ():
        if step <= 0:
            break
        parts.append({**stage, "steps": min(stage["steps"], step)})
        step -= stage["steps"]
    return parts
