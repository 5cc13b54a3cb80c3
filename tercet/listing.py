"""The recipes and model presets that come with Tercet, each with the description in its file."""

import sys
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from shutil import get_terminal_size
from textwrap import shorten

from . import configs

NAME_WIDTH = 27
"""Columns for a name."""

COMMANDS = ("pretrain", "finetune", "distill", "fewshot")
"""The commands that run recipes."""

PRESETS = "presets"
"""What stands for the model presets beside the commands."""

LISTED = (*COMMANDS, PRESETS)
"""What can be listed."""


def list_configs(kind: str | None = None) -> None:
    """Print the recipes and the presets, or those of one kind of `LISTED`, and the folder of their files.

    Raises:
        ValueError: There is no such kind.
    """
    if kind not in (None, *LISTED):
        near = get_close_matches(kind, LISTED, n=1)
        raise ValueError(
            f"unknown KIND {kind!r}; "
            + (f"did you mean {near[0]}?" if near else f"known: {', '.join(LISTED)}")
        )
    for listed in LISTED if kind is None else [kind]:
        print_presets() if listed == PRESETS else print_recipes(listed)
        print()
    print(f"their files: {files(configs)}")


def print_recipes(command: str) -> None:
    """Print the recipes that a command runs."""
    from .configs.recipe import describe_recipe, recipe_names

    print(f"recipes (tercet {command} RECIPE):")
    for name in recipe_names():
        own_command, *about = describe_recipe(name).splitlines()
        if own_command == f"tercet {command} {name}":
            print_entry(name, about)


def print_presets() -> None:
    """Print the model presets."""
    from .configs.recipe import PRESETS as FOLDER
    from .configs.recipe import preset_names

    print("model presets (model.preset in a recipe):")
    for name in preset_names():
        print_entry(name, opening_comment(files(configs) / FOLDER / f"{name}.yaml"))


def print_entry(name: str, about: list[str]) -> None:
    """Print a name and what is said about it: all of it, or what fits into a line of a terminal."""
    text = " ".join(about)
    if sys.stdout is not None and sys.stdout.isatty():
        width = max(get_terminal_size().columns - NAME_WIDTH - 4, 84)
        text = shorten(text, width, placeholder=" ...")
    print(f"  {name:<{NAME_WIDTH}} {text}")


def opening_comment(file: Traversable) -> list[str]:
    """Return the lines of the comment that a file begins with."""
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return lines
