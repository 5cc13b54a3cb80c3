"""The columns of a task's rows, which its recipe alone says: nothing here imports torch."""

from collections.abc import Callable
from typing import Any

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

Names = tuple[str | None, ...]
"""Names of columns; `None` for one that a recipe does without."""

INPUTS: dict[type[Any], Callable[[Any], Names]] = {
    ClassificationRecipe: lambda recipe: recipe.texts,
    MultiLabelRecipe: lambda recipe: recipe.texts,
    RegressionRecipe: lambda recipe: recipe.texts,
    TaggingRecipe: lambda recipe: (recipe.words,),
    QuestionAnsweringRecipe: lambda recipe: (recipe.question, recipe.context),
    MultipleChoiceRecipe: lambda recipe: (recipe.text, recipe.choices),
    RankingRecipe: lambda recipe: (recipe.query,),
    GenerationRecipe: lambda recipe: (recipe.source,),
    ChatRecipe: lambda recipe: (recipe.messages if recipe.prompt is None else recipe.prompt,),
}
"""Recipe of a task -> the columns that a model reads."""

LABELS: dict[type[Any], Callable[[Any], Names]] = {
    ClassificationRecipe: lambda recipe: (recipe.label,),
    MultiLabelRecipe: lambda recipe: (recipe.labels,),
    RegressionRecipe: lambda recipe: (recipe.label,),
    TaggingRecipe: lambda recipe: (recipe.tags,),
    QuestionAnsweringRecipe: lambda recipe: (recipe.answers,),
    MultipleChoiceRecipe: lambda recipe: (recipe.target,),
    RankingRecipe: lambda recipe: (recipe.positive, recipe.negative),
    GenerationRecipe: lambda recipe: (recipe.target,),
    ChatRecipe: lambda recipe: (None if recipe.prompt is None else recipe.completion,),
}
"""Recipe of a task -> the columns that it learns from, besides."""


def input_columns(recipe: TaskRecipe) -> tuple[str, ...]:
    """Name the columns that a model reads."""
    return tuple(column for column in INPUTS[type(recipe)](recipe) if column is not None)


def label_columns(recipe: TaskRecipe) -> tuple[str, ...]:
    """Name the columns that a model learns from, besides those that it reads."""
    return tuple(column for column in LABELS[type(recipe)](recipe) if column is not None)


def columns_of(recipe: TaskRecipe) -> tuple[str, ...]:
    """Name the columns of a task: those that are read, and those of the labels."""
    return *input_columns(recipe), *label_columns(recipe)
