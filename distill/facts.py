"""What a distillation leaves beside its steps: the finished student, how large and fast it is, what was read.

`reports/distill/report.py` makes the report of these and of the steps, and adds scores beside the teacher's.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch

from ..configs.messages import quietly
from ..data.files.atomic_writes import replace_text
from ..data.identities import read_texts
from ..modeling import TercetPreTrainedModel
from ..modeling.saved.checkpoint import Checkpoint
from ..training.devices.precision import join_processes
from ..training.run_folder import EVALUATION, MODEL, RECIPE, TEXTS, delete
from .output import GENERAL, STUDENT, TASK, TEACHER
from .size_and_speed import measure_speeds, size_of
from .steps import Prepared, Step


def keep_student(folder: Path, prepared: Prepared, *, is_timed: bool) -> None:
    """Put the model of the last step where it is looked for, and write how it compares in size and speed."""
    name, step = [*prepared.steps.items()][-1]
    student = folder / STUDENT / name
    delete(folder / MODEL)
    shutil.copytree(student / MODEL, folder / MODEL, dirs_exist_ok=True)
    shutil.copy(folder / RECIPE, folder / MODEL)
    facts = json.loads((student / EVALUATION).read_text(encoding="utf-8"))
    facts |= compare_models(step, student / MODEL, is_timed=is_timed)
    replace_text(folder / TEXTS, json.dumps(texts_of(folder / STUDENT), indent=2) + "\n")
    replace_text(folder / EVALUATION, json.dumps(facts, indent=2) + "\n")


def compare_models(step: Step, student: Path, *, is_timed: bool) -> dict[str, Any]:
    """Compare sizes and optionally times of a student and of the teacher of the step that made it."""
    models = {TEACHER: step.model, STUDENT: Checkpoint.open(str(student)).transformer()}
    with written_as_ours(step.teacher, step.model) as folder:
        folders = {TEACHER: folder, STUDENT: student}
        sizes = {name: asdict(size_of(model, folders[name])) for name, model in models.items()}
        if not is_timed:
            return {"sizes": sizes}
        places = {name: str(folder) for name, folder in folders.items()}
        return {"sizes": sizes, "speeds": measure_speeds(models, places, present_device())}


@contextmanager
def written_as_ours(teacher: Checkpoint, model: TercetPreTrainedModel) -> Iterator[Path]:
    """Yield a folder from which a teacher is loaded as ours: its own, or a temporary one if it is stock."""
    if teacher.is_ours:
        yield teacher.folder
        return
    with tempfile.TemporaryDirectory() as folder, quietly():
        model.save_pretrained(folder)
        yield Path(folder)


def present_device() -> torch.device:
    return cast(torch.device, join_processes().device)


def texts_of(student: Path) -> dict[str, Any]:
    """Return what the steps of a student have read: names, sizes and hashes; of no step, there is nothing."""
    told = read_texts(student / GENERAL / TEXTS)
    rows = read_texts(student / TASK / TEXTS)
    return {split: [*told.get(split, []), *rows.get(split, [])] for split in {**told, **rows}}
