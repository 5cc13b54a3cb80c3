"""All commands of `tercet`, in the order in which help lists them."""

from types import ModuleType

from . import models, predictions, preparations, runs
from .command import Command

MODULES: tuple[ModuleType, ...] = (preparations, runs, predictions, models)
"""The modules that declare commands; each of them is listed in the order of its file."""

COMMANDS = {
    each.name: each for module in MODULES for each in vars(module).values() if isinstance(each, Command)
}
"""Commands by name."""

FUNCTIONS = {name: each.function for name, each in COMMANDS.items() if each.function is not None}
"""What Python has as `tercet.NAME`, too."""
