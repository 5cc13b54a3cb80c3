"""A text, or texts, as a row of a task: what a person types becomes what a model reads.

Each of a task's columns takes one text, in the order of `input_columns`. Where a column holds more than a
text, the task's recipe cuts or wraps it (`RowsRecipe.as_value`).
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ..data.files.problems import Row
from .tasks.recipes import RowsRecipe


def rows_of_texts(recipe: RowsRecipe, texts: Iterable[str | Sequence[Any]], model: str) -> list[Row]:
    """Make a row of each text, or of the texts of each row, one for each column; errors name the model."""
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
            {
                column: recipe.as_value(column, value) if isinstance(value, str) else value
                for column, value in zip(columns, values, strict=True)
            }
        )
    return rows


def example_texts(recipe: RowsRecipe) -> list[str]:
    """Return what stands for the texts of a row where a person is told to give some."""
    return [recipe.example(column) for column in recipe.input_columns]
