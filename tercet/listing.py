"""The recipes and model presets that come with Tercet, each with the description in its file."""

import re
import sys
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from shutil import get_terminal_size
from textwrap import shorten

from . import configs

NAME_WIDTH = 27
"""Columns for a name."""

SENTENCE = re.compile(r"(?<=\w[\w)%])[.:] (?=[A-Z])")
"""Where a sentence ends, or what it announces begins."""

COMMANDS = ("pretrain", "prepare", "finetune", "distill", "fewshot")
"""The commands that run recipes."""

PRESETS = "presets"
"""What stands for the model presets beside the commands."""

LISTED = (*COMMANDS, PRESETS)
"""What can be listed."""


def list_configs(what: str | None = None) -> None:
    """Print a line for each recipe and each preset, and the folder of their files, or the file of one.

    Args:
        what: One of `LISTED`, whose recipes alone are listed, or the name of a recipe or a preset.

    Raises:
        ValueError: There is no such kind or name.
    """
    from .configs.recipe import preset_names, recipe_names, shipped_file

    if what is not None and (text := shipped_file(what)):
        print(text, end="")
        return
    if what not in (None, *LISTED):
        near = get_close_matches(what, [*LISTED, *recipe_names(), *preset_names()], n=1)
        raise ValueError(
            f"unknown kind or name {what!r}; "
            + (f"did you mean {near[0]}?" if near else f"known: {', '.join(LISTED)}, and the names in them")
        )
    for listed in LISTED if what is None else [what]:
        print_presets() if listed == PRESETS else print_recipes(listed)
        print()
    print("all of one: tercet recipes NAME")
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
    """Print a name and the first sentence about it, or what fits of that into a line of a terminal."""
    text = SENTENCE.split(" ".join(about), maxsplit=1)[0].removesuffix(".")
    if sys.stdout is not None and sys.stdout.isatty():
        width = max(get_terminal_size().columns - NAME_WIDTH - 4, NAME_WIDTH)
        text = shorten(text, width, placeholder=" ...")
    print(f"  {name:<{NAME_WIDTH}} {text}".rstrip())


def opening_comment(file: Traversable) -> list[str]:
    """Return the lines of the comment that a file begins with."""
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return lines
