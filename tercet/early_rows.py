"""Wrong columns and missing files of rows, which are answered before torch is imported."""

from typing import Any, cast

from .configs.recipe import parse_recipe
from .finetune.task_recipes import RowsRecipe, TaskRecipe
from .text.record_files import require_columns_early

SPLITS = ("train", "validation", "test")
"""Keys of `data` that name files of rows."""


def check_rows(data: dict[str, Any]) -> None:
    """Refuse the files of a fine-tuning recipe, as far as this is known without reading all rows.

    Args:
        data: The recipe as plain data, of which anything may be wrong; its own check says what.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is of no known kind, or lacks a column that the task reads.
    """
    rows = data.get("data")
    if not isinstance(rows, dict) or rows.get("dataset") is not None:
        return
    try:
        task = parse_recipe(cast(type[RowsRecipe], TaskRecipe), data["task"])
    except (KeyError, TypeError, ValueError):
        return
    for split in SPLITS:
        if isinstance(source := rows.get(split), str):
            require_columns_early(source, task.columns)
