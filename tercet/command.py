"""How a command of `tercet` is declared. Its parser, its function in Python, completion and reference follow.

    @command(RecipeArgument("pretrain"), flag("--resume", "continue an earlier run"), function=pretrain)
    def pretrain_command(options: Namespace) -> None:
        \"\"\"Pretrain a model on raw text. ...\"\"\"      what `tercet pretrain --help` and the reference say

The modules that `commands.py` names have the commands. Each imports what is heavy within its functions, so
that help and listings answer at once.
"""

from abc import ABC, abstractmethod
from argparse import (
    Action,
    ArgumentParser,
    ArgumentTypeError,
    Namespace,
    RawDescriptionHelpFormatter,
    _ActionsContainer,
    _SubParsersAction,
)
from collections.abc import Callable
from dataclasses import dataclass
from inspect import getdoc
from typing import Any

Completions = Callable[..., list[str]]
"""Lists what a word may become, from `prefix` and `parsed_args`."""


class Part(ABC):
    """What a command takes. Abstract: an argument, some of which one may be given, or a recipe."""

    @abstractmethod
    def add_to(self, parser: _ActionsContainer) -> None:
        """Let a parser read it."""


class Argument(Part):
    """An argument or an option.

    Args:
        names: `NAME`, or `--name`.
        completions: What completes it in a shell.
        settings: As `ArgumentParser.add_argument` takes them.
    """

    def __init__(self, *names: str, completions: Completions | None = None, **settings: Any):
        self.names, self.completions, self.settings = names, completions, settings

    def add_to(self, parser: _ActionsContainer) -> None:
        offer(parser.add_argument(*self.names, **self.settings), self.completions)


class OneOf(Part):
    """Options of which one may be given."""

    def __init__(self, *options: Argument):
        self.options = options

    def add_to(self, parser: _ActionsContainer) -> None:
        group = parser.add_mutually_exclusive_group()
        for option in self.options:
            option.add_to(group)


class RecipeArgument(Part):
    """A recipe, and overrides of its values.

    Args:
        command: That which runs such recipes.
        about_overrides: What overrides are for.
        loads_models: Whether the models that it names are loaded.
    """

    def __init__(
        self,
        command: str,
        about_overrides: str = "overrides a value of the recipe",
        *,
        loads_models: bool = True,
    ):
        self.command, self.about_overrides, self.loads_models = command, about_overrides, loads_models

    def add_to(self, parser: _ActionsContainer) -> None:
        about = "a shipped recipe's name, or a YAML file"
        offer(parser.add_argument("recipe", metavar="RECIPE", help=about), recipe_completions)
        overrides = parser.add_argument(
            "overrides", metavar="key=value", nargs="*", help=self.about_overrides
        )
        overrides.required = False  # argparse counts it among what is missing where the recipe is
        offer(overrides, key_completions)


@dataclass(frozen=True)
class Command:
    """A command."""

    name: str
    """What follows `tercet` on the command line."""
    run: Callable[[Namespace], None]
    """Carries it out; its docstring is the command's help."""
    parts: tuple[Part, ...] = ()
    """What it takes."""
    function: Callable[..., Any] | None = None
    """What `tercet.NAME` calls, where Python has the command, too."""

    @property
    def recipe(self) -> RecipeArgument | None:
        return next((part for part in self.parts if isinstance(part, RecipeArgument)), None)

    def add_to(self, commands: "_SubParsersAction[ArgumentParser]") -> None:
        description = getdoc(self.run) or ""
        parser = commands.add_parser(
            self.name,
            help=description.partition("\n")[0],
            description=description,
            formatter_class=RawDescriptionHelpFormatter,
        )
        parser.set_defaults(run=self.run)
        parser.add_argument("--debug", action="store_true", help="show the traceback of a failure")
        for part in self.parts:
            part.add_to(parser)


def command(
    *parts: Part, function: Callable[..., Any] | None = None
) -> Callable[[Callable[[Namespace], None]], Command]:
    """Declare a command, by the function that carries it out on the command line: `NAME_command`.

    Args:
        function: What carries it out in Python, if Python has it: `NAME`.
    """

    def declare(run: Callable[[Namespace], None]) -> Command:
        return Command(run.__name__.removesuffix("_command").replace("_", "-"), run, parts, function)

    return declare


def flag(name: str, about: str) -> Argument:
    """Return an option without a value."""
    return Argument(name, action="store_true", help=about)


def whole_number(text: str) -> int:
    """Read a number of steps, or a seed.

    >>> whole_number("12")
    12
    """
    if text.isdecimal() and len(text) < 11 and int(text) < 2**31:
        return int(text)
    raise ArgumentTypeError(f"{text!r:.40} is no whole number from 0 to {2**31 - 1:,}")


PRECISION = Argument(
    "--precision",
    choices=("fp32", "bf16"),
    default="fp32",
    help="precision of matrix products (%(default)s)",
)

TRUST_REMOTE_CODE = flag("--trust-remote-code", "run the code in the model's folder or repository")


def offer(action: Action, completions: Completions | None) -> None:
    """Attach to an argument what completes it, where argcomplete looks for it."""
    if completions is not None:
        action.completer = completions  # pyright: ignore[reportAttributeAccessIssue]


def recipe_completions(prefix: str, parsed_args: Namespace, **_: object) -> list[str]:
    """List the shipped recipes of a command, and files in this folder."""
    from glob import glob

    from .configs.recipe import recipe_folders
    from .kinds import kind_of

    kind = kind_of(parsed_args.command)
    shipped = [name for name, folder in recipe_folders().items() if folder == kind.folder]
    return [name for name in [*shipped, *glob(f"{prefix}*.yaml")] if name.startswith(prefix)]


def key_completions(prefix: str, parsed_args: Namespace, **_: object) -> list[str]:
    """List the keys of a command's recipe, a level at a time: `training.`, then `training.steps=`."""
    from .kinds import kind_of

    keys = kind_of(parsed_args.command).schema.dotted_keys()
    depth = prefix.count(".")
    above = {key.rpartition(".")[0] for key in keys}
    own = [key for key in keys if key.startswith(prefix) and key.count(".") == depth]
    return [f"{key}." if key in above else f"{key}=" for key in own]
