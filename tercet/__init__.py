"""Tercet: encoder, decoder and sequence-to-sequence Transformers, three readings of one set of blocks.

Importing this package lets transformers find the family, so that `AutoModel` and its kin load it, and offers
the public names of `tercet.modeling`. Neither is imported before it is needed:

    >>> import tercet
    >>> from transformers import AutoConfig
    >>> AutoConfig.for_model("tercet_encoder") == tercet.TercetEncoderConfig()
    True

The commands that pretrain, fine-tune, distill, prompt and predict are functions of this package, too
(docs/python.md).
"""

import sys
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .api import distill, fewshot, finetune
from .api import embed as embed
from .api import load_recipe as load_recipe
from .api import plan as plan
from .api import predict as predict
from .api import prepare as prepare
from .api import pretrain as pretrain
from .api import report as report
from .registration import MODELS, register_when_asked
from .results import Result as Result
from .results import Score as Score

if TYPE_CHECKING:
    from .modeling import *  # noqa: F403

__version__ = version("tercet")


class CommandFolder(ModuleType):
    """A folder of the package whose name is a command's, too: `tercet.finetune(...)` calls the command."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call the command."""
        return vars(self)["__wrapped__"](*arguments, **options)


for _command in (distill, fewshot, finetune):
    _folder = import_module(f".{_command.__name__}", __name__)
    _folder.__class__ = CommandFolder
    vars(_folder)["__wrapped__"] = _command  # whose signature and help it has

OFFERED = (
    *("distill", "embed", "fewshot", "finetune", "load_recipe", "plan", "predict", "prepare", "pretrain"),
    "report",
    *("Result", "Score"),
)
"""Names of this package that are for its users, besides those of the models."""

register_when_asked()


def __getattr__(name: str) -> Any:
    """Find a public name among those of the models, which are imported for it."""
    if name == "__all__":
        return [*OFFERED, *import_module(MODELS).__all__]
    if name == "modeling":
        return import_module(MODELS)
    if not name.startswith(("Tercet", "Neural")):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(MODELS), name)


def __dir__() -> list[str]:
    """List what is offered: the commands, and the models if they are imported already."""
    return sorted({*OFFERED, "__version__", *getattr(sys.modules.get(MODELS), "__all__", ())})
