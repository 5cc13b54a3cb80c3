"""The recipes and model presets that come with Tercet, each with the description in its file."""

import re
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from shutil import get_terminal_size
from textwrap import fill, indent, shorten
from typing import Any

from . import configs
from .kinds import KINDS, kind_of

SCREEN_WIDTH = 98
"""Columns for names beside each other."""

NAME_WIDTH = 27
"""Columns for a name."""

SENTENCE = re.compile(r"(?<=\w[\w)%])[.:] (?=[A-Z])")
"""Where a sentence ends, or what it announces begins."""

PRESETS = "presets"
"""What stands for the model presets beside the commands."""

LISTED = (*KINDS, PRESETS)
"""What can be listed."""


def list_configs(what: str | None = None, *, everything: bool = False) -> None:
    """Print the names of the recipes on one screen, a line for each recipe or preset, or the file of one.

    Args:
        what: One of `LISTED`, whose recipes alone are listed, or the name of a recipe or a preset.
    """
    from .configs.recipe import preset_names, recipe_names, shipped_file

    if what is not None and (text := shipped_file(what)):
        if what in recipe_names():
            print(for_editors())
        print(text, end="")
        return
    if what not in (None, *LISTED):
        near = get_close_matches(what, [*LISTED, *recipe_names(), *preset_names()], n=1)
        raise ValueError(
            f"unknown kind or name {what!r}; "
            + (f"did you mean {near[0]}?" if near else f"known: {', '.join(LISTED)}, and the names in them")
        )
    if what is None and not everything:
        for command, kind in KINDS.items():
            print(f"{kind.purpose} (tercet {command} RECIPE):")
            names = ", ".join(name for name, _ in recipes_of(command))
            print(indent(fill(names, SCREEN_WIDTH, break_on_hyphens=False), "  "))
        print("a line about each: tercet recipes finetune, ..., tercet recipes --all")
    else:
        for listed in LISTED if what is None else [what]:
            print_presets() if listed == PRESETS else print_recipes(listed)
            print()
    print("all of one: tercet recipes NAME")
    print(f"their files: {files(configs)}")


def for_editors() -> str:
    """Return the line of a recipe's file by which YAML editors find the schema of recipes."""
    from .configs.schema import FILE

    return f"# yaml-language-server: $schema={FILE}"


def print_values(command: str, data: dict[str, Any]) -> None:
    """Print a recipe as a file that has all of its values, those that follow by default included."""
    from .configs.documents import write_document

    print(for_editors())
    print(write_document(kind_of(command).schema.completed(data)), end="")


def print_recipes(command: str) -> None:
    print(f"recipes (tercet {command} RECIPE):")
    for name, about in recipes_of(command):
        print_entry(name, about)


def recipes_of(command: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the names of the recipes that a command runs, and what is said about them."""
    from .configs.recipe import describe_recipe, recipe_names

    for name in recipe_names():
        own_command, *about = describe_recipe(name).splitlines()
        if own_command == f"tercet {command} {name}":
            yield name, about


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


def listed_completions(prefix: str, **_: object) -> list[str]:
    """List what `tercet recipes` lists: kinds, recipes and presets."""
    from .configs.recipe import preset_names, recipe_names

    names = dict.fromkeys([*LISTED, *recipe_names(), *preset_names()])
    return [name for name in names if name.startswith(prefix)]
