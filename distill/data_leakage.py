"""Whether a student is measured on rows that its teacher has learned: there the teacher knows the answers.

Who fine-tunes a teacher with one share of the rows held out, and distills with another, measures both on
rows that the teacher has learned by heart. Which these are, the teacher's recipe says; its rows are read
again, and found by what a model reads of them. Rows that the teacher was measured on itself are in order.
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets import Dataset
from pydantic import TypeAdapter

from ..finetune.recipe import DataRecipe, FineTuningRecipe, PretrainedModelRecipe
from ..finetune.splits import MEASURED, contents, read_splits
from ..finetune.task import Task
from ..storage.finished_run import RECIPE, TEXTS, read_facts
from ..text.cache import cache_folder
from ..text.digests import identify_file

SPLITS = ("train", *MEASURED)


def require_no_leakage(
    name: str, folder: Path, task: Task, data: DataRecipe, rows: Mapping[str, Dataset]
) -> None:
    """Make sure that a teacher has not learned the rows on which its student is measured.

    Where nobody can tell, because its recipe or its rows are not there any more, a warning says so.

    Args:
        name: The teacher's, as the recipe calls it.
        folder: Where its model lies.
        task: That both know.
        data: From which rows the student learns.
        rows: These, by splits.

    Raises:
        ValueError: It has learned some of them.
    """
    try:
        theirs = rows_of_teacher(folder, task, data)
    except (ValueError, OSError) as error:
        warnings.warn(
            f"the training rows of the teacher {name} are unknown ({error}): make sure that the student is "
            f"not evaluated on them",
            stacklevel=2,
        )
        return
    columns = task.recipe.input_columns
    learned = set(contents(theirs.pop("train"), columns))
    learned -= {each for split in theirs.values() for each in contents(split, columns)}
    for split in MEASURED:
        known = [each in learned for each in contents(rows[split], columns)] if split in rows else []
        if any(known):
            raise ValueError(complaint(name, folder, data, split, known))


def rows_of_teacher(folder: Path, task: Task, data: DataRecipe) -> dict[str, Dataset]:
    """Read the rows that a teacher learned from and was measured on, by splits.

    Raises:
        FileNotFoundError: A file is not there any more.
        ValueError: Its folder does not say which they were, or they are not the same any more.
    """
    told = data_of(folder)
    if told.dataset is None:
        texts = read_facts(folder.parent / TEXTS) or read_facts(folder / TEXTS)
        named = {split: file for split in SPLITS if (file := getattr(told, split)) is not None}
        own = [file for split in SPLITS if (file := getattr(data, split)) is not None]
        files = {split: same_file(file, own, texts.get(split, [])) for split, file in named.items()}
        told = replace(told, **files)
    beginning = PretrainedModelRecipe(path=str(folder))
    return read_splits(FineTuningRecipe(model=beginning, task=task.recipe, data=told, output=str(folder)))


def data_of(folder: Path) -> DataRecipe:
    """Return the part of a teacher's recipe that names its rows: of a fine-tuning, or of a distillation.

    Raises:
        ValueError: There is no recipe, or it names none.
    """
    recipe: dict[str, Any] = read_facts(folder / RECIPE)
    told = recipe.get("data") or (recipe.get("task") or {}).get("data")
    if told is None:
        raise ValueError(f"{folder} has no {RECIPE} that names rows")
    return TypeAdapter(DataRecipe).validate_python(told)


def same_file(file: str, others: Iterable[str], noted: list[dict[str, Any]]) -> str:
    """Find a file with the contents that a teacher's had: that of its recipe, or one that its student reads.

    Raises:
        ValueError: There is none.
    """
    hashes = {each.get("sha256") for each in noted}
    for path in (file, *others):
        found = Path(path).expanduser()
        if found.is_file() and (
            (not hashes and path == file) or identify_file(found, cache_folder(None))["sha256"] in hashes
        ):
            return path
    raise ValueError(f"{file} does not exist any more, or has changed")


def complaint(name: str, folder: Path, data: DataRecipe, split: str, known: list[bool]) -> str:
    """Describe which measured rows the teacher knows, and what helps."""
    shown = f"the teacher {name} has learned {sum(known):,} of the {len(known):,} rows"
    if split == "validation" and data.validation is None:
        remedy = remedy_for_share(data, data_of(folder))
        return f"{shown} that task.data.validation_share={data.validation_share:g} holds out: {remedy}"
    row = known.index(True) + 1
    return f"{shown} of task.data.{split}, row {row:,} the first: take them out, or measure on other rows"


def remedy_for_share(data: DataRecipe, theirs: DataRecipe) -> str:
    """Return how the student holds out what its teacher held out: by the same file, share or rows."""
    if theirs.validation is not None:
        return f"set task.data.validation, as its recipe did ({theirs.validation})"
    if data.validation_share == theirs.validation_share:
        return (
            f"set task.data.train={theirs.train}, as its recipe did, or task.data.validation to rows that it "
            "has not learned"
        )
    return f"set task.data.validation_share={theirs.validation_share:g}, as its recipe did"
