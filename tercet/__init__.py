"""Tercet: encoder, decoder and sequence-to-sequence Transformers, three readings of one set of blocks.

Importing this package lets transformers find the family, so that `AutoModel` and its kin load it, and offers
the public names of `tercet.modeling`. Neither is imported before it is needed:

    >>> import tercet
    >>> from transformers import AutoConfig
    >>> AutoConfig.for_model("tercet_encoder") == tercet.TercetEncoderConfig()
    True

This folder declares the commands. Those that pretrain, fine-tune, distill, prompt and predict are functions
of this package, too (docs/python.md).
"""

import sys
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .registration import MODELS, register_when_asked

if TYPE_CHECKING:
    from .calls import load_recipe as load_recipe
    from .modeling import *  # noqa: F403
    from .predictions import *  # noqa: F403
    from .preparations import *  # noqa: F403
    from .results import Result as Result
    from .results import Score as Score
    from .runs import *  # noqa: F403

__version__ = version("tercet")

OTHERS = {"load_recipe": "calls", "Result": "results", "Score": "results"}
"""What users are offered besides commands and models, and where it is."""


def functions() -> dict[str, Any]:
    """Return the commands that are functions, too; none yet while their table is imported."""
    return vars(import_module(".commands", __name__)).get("FUNCTIONS", {})


class CommandFolder(ModuleType):
    """A folder of the package whose name is a command's, too: `tercet.finetune(...)` calls the command."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.__wrapped__(*arguments, **options)

    @property
    def __wrapped__(self) -> Any:
        """The command, whose signature and help it has."""
        return functions()[self.__name__.rpartition(".")[2]]


for _name in ("distill", "fewshot", "finetune"):
    import_module(f".{_name}", __name__).__class__ = CommandFolder

register_when_asked()


def __getattr__(name: str) -> Any:
    """Find a public name among the commands, which are imported for it, or those of the models."""
    if name == "__all__":
        return [*functions(), *OTHERS, *import_module(MODELS).__all__]
    if name == "modeling":
        return import_module(MODELS)
    if name.startswith(("Tercet", "Neural")):
        return getattr(import_module(MODELS), name)
    if name in OTHERS:
        return getattr(import_module(f".{OTHERS[name]}", __name__), name)
    if not name.startswith("_") and name in functions():
        return functions()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List what is offered: the commands, and the models if they are imported already."""
    return sorted({*functions(), *OTHERS, "__version__", *getattr(sys.modules.get(MODELS), "__all__", ())})
