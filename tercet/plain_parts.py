"""The task of a recipe as plain data: its columns and templates, by the schema of recipes and without torch.

{"kind": "classification", "label": "stars"} --plain_task--> PlainTask: reads `text`, learns `stars`
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .configs.schema import Node, Schema, shipped
from .fewshot.prompts.templates import Template, templates_of
from .fewshot.tasks.recipes import TemplateFields
from .finetune.tasks.recipes import ColumnFields, ColumnNames


@dataclass(frozen=True)
class PlainTask(ColumnNames):
    """The plain data of a task's recipe, with the defaults of what it leaves out."""

    values: Mapping[str, Any]
    """Key -> value."""
    rules: ColumnFields
    """The fields that name columns."""

    def named(self, name: str) -> Any:
        return self.values[name]

    @property
    def fields(self) -> ColumnFields:
        return self.rules


def plain_task(data: Mapping[str, Any]) -> PlainTask:
    """Check the plain data of a task's recipe by the schema, which needs no torch."""
    definition, values = chosen_task("FineTuningRecipe", data)
    return PlainTask(values, ColumnFields(**definition["columns"]))


def plain_templates(data: Mapping[str, Any]) -> dict[str, Template]:
    """Check the plain data of a few-shot task by the schema; return its templates by field."""
    definition, values = chosen_task("FewShotRecipe", data)
    return templates_of(TemplateFields(**definition["templates"]), values)


def chosen_task(recipe: str, data: Mapping[str, Any]) -> tuple[Node, dict[str, Any]]:
    """Check the `task` of a recipe by the schema; return the definition of its kind, and all values."""
    definitions = shipped()["$defs"]
    schema = Schema(definitions[recipe]["properties"]["task"], definitions)
    schema.check(data, ("task",))
    kinds = {member["properties"]["kind"]["const"]: member for member in schema.members(schema.root)}
    return kinds[data["kind"]], schema.completed(data)
