"""What a plan is made of: a pretraining recipe, and the machines that it is planned for."""

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from ..configs.recipe import load_recipe
from ..pretraining.recipe import PretrainingRecipe
from .machines import PlanRecipe, read_machines, split_overrides


def load_plan(source: str | Path, overrides: Iterable[str] = ()) -> tuple[PretrainingRecipe, PlanRecipe]:
    """Read a recipe, and from the overrides what replaces its values and what describes the machines.

    Args:
        source: Path of a YAML file, or the name of a shipped recipe.
        overrides: `devices=64` and its like describe the machines; keys with a dot, and those that a recipe
            begins with, replace the recipe's values.

    Raises:
        ValueError: As in `load_recipe`; the same of the plan's values.
    """
    of_recipe, of_machines = split_overrides(overrides, {field.name for field in fields(PretrainingRecipe)})
    return load_recipe(PretrainingRecipe, source, of_recipe), read_machines(of_machines)
