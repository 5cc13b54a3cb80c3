"""Completion in the shell, with `argcomplete`: commands and options, recipes, and the keys of recipes.

pip install 'tercet[completion]'
eval "$(register-python-argcomplete tercet)"    # bash and zsh; a line for the shell's start-up file
"""

import os
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable

Completions = Callable[..., list[str]]
"""Lists what a word may become, from `prefix` and `parsed_args`."""


def complete(parser: ArgumentParser) -> None:
    """Answer a shell that asks how a word may go on, and exit; otherwise do nothing."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)


def offer(action: Action, completions: Completions) -> None:
    """Attach to an argument what completes it, where argcomplete looks for it."""
    action.completer = completions  # pyright: ignore[reportAttributeAccessIssue]


def recipe_completions(prefix: str, parsed_args: Namespace, **_: object) -> list[str]:
    """List the shipped recipes of a command, and files in this folder."""
    from glob import glob

    from .configs.recipe import recipe_folders
    from .early_checks import kind_of

    kind = kind_of(parsed_args.command)
    shipped = [name for name, folder in recipe_folders().items() if folder == kind.folder]
    return [name for name in [*shipped, *glob(f"{prefix}*.yaml")] if name.startswith(prefix)]


def key_completions(prefix: str, parsed_args: Namespace, **_: object) -> list[str]:
    """List the keys of a command's recipe, a level at a time: `training.`, then `training.steps=`."""
    from .configs.checking import dotted_keys
    from .configs.stand_ins import without_libraries
    from .early_checks import kind_of

    with without_libraries():
        keys = dotted_keys(kind_of(parsed_args.command).recipe)
    depth = prefix.count(".")
    above = {key.rpartition(".")[0] for key in keys}
    own = [key for key in keys if key.startswith(prefix) and key.count(".") == depth]
    return [f"{key}." if key in above else f"{key}=" for key in own]
