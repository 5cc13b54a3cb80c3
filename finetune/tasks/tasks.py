"""The kinds of tasks: from what a recipe says to what can be learned, kept in the model's folder."""

import json
from pathlib import Path

from datasets import Dataset
from pydantic import TypeAdapter

from ...configs.by_kind import ByKind
from ...configs.paths import TASK, read_task
from ...configs.recipe import recipe_data
from ...data.files.atomic_writes import replace_text
from .task import MAX_LENGTH, Facts, Task
from .task_recipes import TaskRecipe

ROWS_TO_TRY = 16
"""Rows that the modules of `task.metrics` score before a model learns, to see that they can."""

TASKS = ByKind(
    __name__,
    {
        "classification": "texts.Classification",
        "multi_label": "texts.MultiLabel",
        "regression": "regression.Regression",
        "tagging": "tagging.Tagging",
        "question_answering": "question_answering.QuestionAnswering",
        "multiple_choice": "multiple_choice.MultipleChoice",
        "ranking": "ranking.Ranking",
        "generation": "generation.Generation",
        "chat": "chat.Chat",
    },
)
"""The `kind` of a recipe -> the task."""


def task_of(recipe: TaskRecipe, facts: Facts | None = None) -> Task:
    """Return the task of a recipe, which knows no more of its training rows than the facts."""
    return TASKS[recipe.kind](recipe, facts)


def build_task(recipe: TaskRecipe, train: Dataset, *, trust_remote_code: bool = False) -> Task:
    """Find out what the labels of a task are, and load what else shall score it.

    Args:
        recipe: Of the task.
        train: The training rows.
        trust_remote_code: Run the code of modules in `task.metrics` that are not `evaluate`'s own.

    Raises:
        ValueError: There is nothing to learn from the rows, or a module of `task.metrics` cannot be loaded or
            does not score such a task.
    """
    task = task_of(recipe, task_of(recipe).find(train))
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
    """Read what a model can do.

    Raises:
        ValueError: Its folder does not say, or the file is damaged.
    """
    told = read_task(folder)
    recipe = TypeAdapter(TaskRecipe).validate_python(told["task"])
    return task_of(recipe, told["facts"])
