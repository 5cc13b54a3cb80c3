"""From what a recipe says to what can be learned, kept in the model's folder."""

import json
from pathlib import Path

from datasets import Dataset
from pydantic import TypeAdapter

from ...configs.model_paths import TASK, read_task
from ...configs.recipe import recipe_data
from ...data.files.atomic_writes import replace_text
from .recipes import RowsRecipe, TaskRecipe
from .task import MAX_LENGTH, Task

ROWS_TO_TRY = 16
"""Rows that the modules of `task.metrics` score before a model learns, to see that they can."""


def build_task(recipe: RowsRecipe, train: Dataset, *, trust_remote_code: bool = False) -> Task:
    """Find out what the labels of a task are, and load what else shall score it."""
    task = recipe.build(recipe.build().find(train))
    if names := getattr(recipe, "metrics", ()):
        from .library_metrics import load_metrics

        task.modules = load_metrics(names, trust_remote_code=trust_remote_code)
        few = train.select(range(min(len(train), ROWS_TO_TRY)))
        task.library_scores(task.guess(train, few), task.references(few))
    return task


def keep_task(task: Task, folder: Path, max_length: int) -> None:
    """Write into a model's folder what it can do, for `load_task`, and how many tokens of a row it reads."""
    told = {"task": recipe_data(task.recipe), "facts": task.facts | {MAX_LENGTH: max_length}}
    replace_text(folder / TASK, json.dumps(told, indent=2, ensure_ascii=False) + "\n")


def load_task(folder: Path) -> Task:
    """Read what a model can do."""
    told = read_task(folder)
    recipe = TypeAdapter(TaskRecipe).validate_python(told["task"])
    return recipe.build(told["facts"])
