"""The kinds of tasks: from what a recipe says to what can be learned, kept in the model's folder."""

import json
from pathlib import Path
from typing import Any

from datasets import Dataset
from pydantic import TypeAdapter

from ..configs.recipe import recipe_data
from ..storage.finished_run import TASK
from ..training.disk import replace_text
from .chat import Chat
from .generation import Generation
from .library_metrics import load_metrics
from .multiple_choice import MultipleChoice
from .question_answering import QuestionAnswering
from .ranking import Ranking
from .recipe import FineTuningRecipe
from .regression import Regression
from .tagging import Tagging
from .task import MAX_LENGTH, Task
from .task_recipes import (
    ChatRecipe,
    ClassificationRecipe,
    GenerationRecipe,
    MultiLabelRecipe,
    MultipleChoiceRecipe,
    QuestionAnsweringRecipe,
    RankingRecipe,
    RegressionRecipe,
    TaggingRecipe,
    TaskRecipe,
)
from .texts import Classification, MultiLabel

ROWS_TO_TRY = 16
"""Rows that the modules of `task.metrics` score before a model learns, to see that they can."""

TASKS: dict[type[Any], type[Task]] = {
    ClassificationRecipe: Classification,
    MultiLabelRecipe: MultiLabel,
    RegressionRecipe: Regression,
    TaggingRecipe: Tagging,
    QuestionAnsweringRecipe: QuestionAnswering,
    MultipleChoiceRecipe: MultipleChoice,
    RankingRecipe: Ranking,
    GenerationRecipe: Generation,
    ChatRecipe: Chat,
}
"""Recipe of a task -> the task, once its training rows are known."""


def require_usable(recipe: TaskRecipe, rows: Dataset) -> None:
    """Make sure that each row can be learned from, whatever the others hold.

    Raises:
        RowError: One cannot.
    """
    kind = TASKS[type(recipe)]
    kind.require_inputs(recipe, rows)
    kind.require_labels(recipe, rows)


def repair(recipe: TaskRecipe, rows: Dataset, row: int) -> dict[str, Any] | None:
    """Repair the columns of a row that cannot be used, or give `None` where that would be a guess."""
    return TASKS[type(recipe)].repair(recipe, rows, row)


def settled(recipe: FineTuningRecipe) -> FineTuningRecipe:
    """Fill in what a recipe leaves to the model.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: It cannot do the task so.
    """
    return TASKS[type(recipe.task)].settled(recipe)


def strata(recipe: TaskRecipe, rows: Dataset) -> list[str] | None:
    """Return each row's label if it has one, so that rows are held out in proportion."""
    return TASKS[type(recipe)].strata(recipe, rows)


def build_task(recipe: TaskRecipe, train: Dataset) -> Task:
    """Find out what the labels of a task are, and load what else shall score it.

    Raises:
        ValueError: There is nothing to learn from the rows, or a module of `task.metrics` cannot be loaded or
            does not score such a task.
    """
    kind = TASKS[type(recipe)]
    task = kind(recipe, kind.find(recipe, train))
    task.modules = load_metrics(getattr(recipe, "metrics", ()))
    if task.modules:
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
        ValueError: Its folder does not say.
    """
    if not (folder / TASK).exists():
        raise ValueError(
            f"{folder} has no {TASK}, so it was not made by tercet finetune: fine-tune it, or use "
            "transformers.pipeline"
        )
    told = json.loads((folder / TASK).read_text(encoding="utf-8"))
    recipe = TypeAdapter(TaskRecipe).validate_python(told["task"])
    return TASKS[type(recipe)](recipe, told["facts"])
