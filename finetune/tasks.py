"""The kinds of tasks: from what a recipe says to what can be learned."""

from datasets import Dataset

from .tagging import Tagging
from .task import Task
from .task_recipes import ClassificationRecipe, MultiLabelRecipe, RegressionRecipe, TaggingRecipe, TaskRecipe
from .texts import Classification, MultiLabel, Regression

TASKS: dict[type, type[Task]] = {
    ClassificationRecipe: Classification,
    MultiLabelRecipe: MultiLabel,
    RegressionRecipe: Regression,
    TaggingRecipe: Tagging,
}
"""What is said about a task -> the task, once its training rows are known."""


def columns_of(recipe: TaskRecipe) -> tuple[str, ...]:
    """Name the columns of a task: those that are read, and those of the labels."""
    kind = TASKS[type(recipe)]
    return *kind.inputs_in(recipe), *kind.labels_in(recipe)


def build_task(recipe: TaskRecipe, train: Dataset) -> Task:
    """Find out what the labels of a task are.

    Raises:
        ValueError: There is nothing to learn from the rows.
    """
    kind = TASKS[type(recipe)]
    return kind(recipe, kind.find(recipe, train))
