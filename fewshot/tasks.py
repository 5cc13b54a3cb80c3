"""The kinds of tasks, by the recipes that describe them."""

from typing import Any

from .choices import Cloze, MinimalPair, MultipleChoice, PartialEvaluation
from .generation import Generation
from .likelihood import Completion, Perplexity
from .task import Task
from .task_recipes import (
    ClozeRecipe,
    Common,
    CompletionRecipe,
    GenerationRecipe,
    MinimalPairRecipe,
    MultipleChoiceRecipe,
    PartialEvaluationRecipe,
    PerplexityRecipe,
)

TASKS: dict[type[Common], type[Any]] = {
    MultipleChoiceRecipe: MultipleChoice,
    ClozeRecipe: Cloze,
    PartialEvaluationRecipe: PartialEvaluation,
    MinimalPairRecipe: MinimalPair,
    CompletionRecipe: Completion,
    GenerationRecipe: Generation,
    PerplexityRecipe: Perplexity,
}
"""What a recipe says about a task -> the task."""


def build_task(recipe: Common) -> Task:
    """Build the task that a recipe describes.

    Raises:
        ValueError: A template is none, or answers cannot be normalized as they shall be.
    """
    return TASKS[type(recipe)](recipe)
