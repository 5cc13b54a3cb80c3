"""A text, or texts, as a row of a task: what a person types becomes what a model reads.

Each of a task's columns takes one text, in the order of `input_columns`. Where a column holds more than a
text, the text is cut or wrapped: into words and marks for a tagger, into a user's message for a chat model,
and a list of choices is written as JSON.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ..data.files.problems import Row
from .tasks.task_recipes import ChatRecipe, MultipleChoiceRecipe, RowsRecipe, TaggingRecipe

WORD = re.compile(r"\w+(?:[-'\u2019]\w+)*|[^\w\s]")
"""A word, whose parts a hyphen or an apostrophe joins, or a mark."""


def rows_of_texts(recipe: RowsRecipe, texts: Iterable[str | Sequence[Any]], model: str) -> list[Row]:
    """Make a row of each text, or of the texts of each row.

    Args:
        recipe: The task's.
        texts: A text for each row, or one for each column that the task reads.
        model: What the model is called, for the error.

    Raises:
        ValueError: A row has more or fewer texts than the task has columns, or its choices are no list.
    """
    columns = recipe.input_columns
    rows = []
    for own in texts:
        values = [own] if isinstance(own, str) else [*own]
        if len(values) != len(columns):
            number = "1 text" if len(values) == 1 else f"{len(values)} texts"
            named = f"the {'columns' if len(columns) > 1 else 'column'} {' and '.join(columns)}"
            raise ValueError(
                f"{model} reads {named}, and this is {number}: give one for each, in this order, and put a "
                "text of several words into quotes"
            )
        rows.append(
            {column: as_value(recipe, column, value) for column, value in zip(columns, values, strict=True)}
        )
    return rows


def example_texts(recipe: RowsRecipe) -> list[str]:
    """Return what stands for the texts of a row where a person is told to give some."""
    columns = recipe.input_columns
    choices = recipe.choices if isinstance(recipe, MultipleChoiceRecipe) else None
    names = ["a text"] if len(columns) == 1 else [f"the {column}" for column in columns]
    return [
        '["one", "another"]' if column == choices else name
        for column, name in zip(columns, names, strict=True)
    ]


def as_value(recipe: RowsRecipe, column: str, value: Any) -> Any:
    """Return what a column holds for a text."""
    if not isinstance(value, str):
        return value
    if isinstance(recipe, TaggingRecipe):
        return WORD.findall(value)
    if isinstance(recipe, ChatRecipe) and recipe.prompt is None:
        return [{"role": "user", "content": value}]
    if isinstance(recipe, MultipleChoiceRecipe) and column == recipe.choices:
        return choices_in(value, column)
    return value


def choices_in(text: str, column: str) -> list[Any]:
    """Read a list of choices that is written as JSON.

    >>> choices_in('["yes", "no"]', "choices")
    ['yes', 'no']
    """
    try:
        choices = json.loads(text)
    except ValueError:
        choices = None
    if not isinstance(choices, list):
        raise ValueError(f'{column} is {text!r:.60}: write a list of texts as JSON, such as ["yes", "no"]')
    return choices
