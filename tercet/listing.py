"""The recipes and model presets that come with Tercet, each with the description in its file."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from shutil import get_terminal_size
from textwrap import shorten

from . import configs
from .configs.recipe import PRESETS, describe_recipe, preset_names, recipe_names

NAME_WIDTH = 27
"""Columns for a name."""


def list_configs() -> None:
    """Print the recipes and the presets, and the folder of their files."""
    folder = files(configs)
    told = {name: describe_recipe(name).splitlines() for name in recipe_names()}
    for command in ("pretrain", "finetune", "distill", "fewshot"):
        print(f"recipes (tercet {command} RECIPE):")
        for name, (own_command, *about) in told.items():
            if own_command == f"tercet {command} {name}":
                print_entry(name, about)
        print()
    print("model presets (model.preset in a recipe):")
    for name in preset_names():
        print_entry(name, opening_comment(folder / PRESETS / f"{name}.yaml"))
    print(f"\ntheir files: {folder}")


def print_entry(name: str, about: list[str]) -> None:
    """Print a name and what fits into a line about it."""
    width = max(get_terminal_size().columns - NAME_WIDTH - 4, 84)
    print(f"  {name:<{NAME_WIDTH}} {shorten(' '.join(about), width, placeholder=' ...')}")


def opening_comment(file: Traversable) -> list[str]:
    """Give the lines of the comment that a file begins with."""
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return lines
