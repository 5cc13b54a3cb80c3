"""Trying settings: every combination of a small grid, each judged on the validation rows."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from ..configs.recipe import parse_recipe, recipe_data
from .recipe import FineTuningRecipe

VARIABLE = ("training.", "lora.", "model.overrides.")
"""What the keys of a grid begin with: what changes neither rows nor weights to begin with."""


def combinations(recipe: FineTuningRecipe) -> list[dict[str, Any]]:
    """List what is to be tried, each as keys and values.

    Raises:
        ValueError: A key is none that can be varied, or has no values.
    """
    for key, values in recipe.grid.items():
        if not key.startswith(VARIABLE) or key == "training.seeds":
            raise ValueError(f"grid.{key}: a grid varies keys of {', '.join(VARIABLE)}; remove it")
        if not values:
            raise ValueError(f"grid.{key} has no values: list some, or remove it")
    tried = [dict(zip(recipe.grid, values, strict=True)) for values in product(*recipe.grid.values())]
    for values in tried:
        varied(recipe, values)  # raises what is wrong with a value before anything runs
    return tried


def varied(recipe: FineTuningRecipe, values: Mapping[str, Any]) -> FineTuningRecipe:
    """Give a recipe other values.

    Raises:
        ValueError: A key is unknown, or a value impossible.
    """
    data = recipe_data(replace(recipe, grid={}))
    for key, value in values.items():
        *above, last = key.split(".")
        part = data
        for name in above:
            part[name] = part.get(name) or {}
            part = part[name]
        part[last] = value
    return parse_recipe(FineTuningRecipe, data)


def in_words(values: Mapping[str, Any]) -> Iterator[str]:
    """Say what was tried: `learning_rate=5e-05`."""
    for key, value in values.items():
        yield f"{key.rpartition('.')[2]}={value}"
