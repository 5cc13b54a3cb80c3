"""What is kept of a run that was given up, to find out why: the last batch, what came of it, and the weights.

non_finite/
    batch-0.safetensors   process 0's sequences of the batch, and the edges of its micro-batches
    step.json             step, place in the data, losses, norm of the gradient
    step-00000100/        a checkpoint, apart from those from which the run continues
"""

import json
import math
import shutil
from pathlib import Path
from typing import Any, cast

import safetensors.torch
import torch
from torch import Tensor

from ..data.files.atomic_writes import WriteError, explaining_a_full_disk
from ..data.steps.batches import Part
from .checkpoints.checkpoint import save_checkpoint
from .loop import Training
from .skipping import NonFiniteError

NON_FINITE = "non_finite"
"""Name of the folder, in the run's."""


def say_what_is_kept(
    folder: Path, error: NonFiniteError, training: Training, about: dict[str, Any], newest: Path | None
) -> str:
    """Keep what is needed to see why a run was given up, and say where, and from where it can go on.

    Args:
        training: What to keep; every process calls this.
        about: The recipe as plain data, kept with it.
        newest: The checkpoint before the first of the skipped steps, if there is one.
    """
    goes_on = (
        "there is no checkpoint from before them: begin anew with other values"
        if newest is None
        else f"--resume goes on from {newest.name}, from before them, with the values that you change"
    )
    try:
        kept = keep_evidence(folder, error, training, about)
    except WriteError as full:
        return f"its data could not be kept: {full}; {goes_on}"
    return f"its batch and the weights are in {kept}; {goes_on}"


def keep_evidence(folder: Path, error: NonFiniteError, training: Training, about: dict[str, Any]) -> Path:
    """Write down the step that an error is about, in place of an earlier one; every process calls this.

    Raises:
        WriteError: There is no room.
    """
    target = folder / NON_FINITE
    if training.accelerator.is_main_process:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
    training.accelerator.wait_for_everyone()
    for part in error.step.parts:
        _keep_part(target, part, training.accelerator.process_index)
    numbers = _numbers(error, training)
    if training.accelerator.is_main_process:
        with explaining_a_full_disk(target, len(str(numbers))):
            (target / "step.json").write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    save_checkpoint(target, training, recipe=about)
    return target


def _keep_part(target: Path, part: Part, process_index: int) -> None:
    # Of a mixture of objectives, the file's name tells which.
    component = "" if part.component is None else f"-{part.component}"
    path = target / f"batch-{process_index}{component}.safetensors"
    # Its numbers follow from its tensors, of which some are one.
    tensors = {name: value.clone() for name, value in part.batch.items() if isinstance(value, Tensor)}
    num_bytes = sum(value.numel() * value.element_size() for value in tensors.values())
    with explaining_a_full_disk(path, num_bytes):
        safetensors.torch.save_file(tensors | {"edges": torch.tensor(part.edges)}, path)


def _numbers(error: NonFiniteError, training: Training) -> dict[str, Any]:
    # A number that is not finite is a word, since JSON has none for it.
    common = {name: float(error.metrics[name]) for name in ("learning_rate", "grad_norm")}
    shares = {name: value.float() for name, value in error.metrics.items() if name not in common}
    losses = cast(Tensor, training.accelerator.reduce(torch.stack(list(shares.values())))).tolist()
    names = [name if name == "loss" else f"{name}/loss" for name in shares]
    numbers = common | dict(zip(names, losses, strict=True))
    epoch, number, _ = error.step.cursor
    skipped = int(training.progress.skipped)
    known = {"step": training.progress.step, "epoch": epoch, "number": number, "skipped": skipped}
    return known | {name: value if math.isfinite(value) else str(value) for name, value in numbers.items()}
