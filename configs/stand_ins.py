"""Modules of ours, imported without the libraries that take seconds, whose names stand for nothing meanwhile.

A recipe's dataclass lies beside what it builds, so its module imports torch. A wrong key or value should be
answered at once, and to check one takes the dataclass alone. While `without_libraries` holds, `import torch`
gives a module of stand-ins: classes that can be derived from, called, subscripted and used as decorators,
and that compute nothing. What was imported so is forgotten in the end: whoever imports it next has it whole.
"""

import sys
import threading
from abc import ABCMeta
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

LIBRARIES = frozenset(
    {
        *("torch", "transformers", "tokenizers", "accelerate", "safetensors", "huggingface_hub", "peft"),
        *("numpy", "scipy", "sklearn", "datasets", "pyarrow", "matplotlib"),
    }
)
"""Packages that recipes, the folders of runs and the names of files do without."""

PACKAGE = (__package__ or "").partition(".")[0]
"""The package of all our folders."""

MODELS = f"{PACKAGE}.modeling"
"""Our models, of which recipes need names alone."""

CONFIGURATIONS = (f"{MODELS}.configuration_", f"{MODELS}.recurrent.configurations")
"""How the names of modules begin that define the fields of configurations, and are imported as they are."""


class StandIn(ABCMeta):
    """Makes the classes that stand for what a library has; other attributes of theirs are stand-ins, too."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = stand_in(name)
        setattr(cls, name, made)
        return made

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        """Return what is decorated, or something that stands for the result; classes of ours are built."""
        if "stands_in" not in vars(cls):
            return super().__call__(*arguments, **options)
        is_decorator = len(arguments) == 1 and callable(arguments[0]) and not options
        return arguments[0] if is_decorator else stand_in(cls.__name__)

    def __getitem__(cls, _: Any) -> Any:
        """Return a generic's stand-in for every choice of its parameters."""
        return cls

    def __iter__(cls) -> Iterator[Any]:
        """Hold nothing."""
        return iter(())

    def __neg__(cls) -> Any:
        """Return what stands for the result."""
        return cls


for _operator in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    for _side in ("", "r"):  # tables that a module computes as it is imported
        setattr(StandIn, f"__{_side}{_operator}__", StandIn.__getitem__)


def stand_in(name: str) -> Any:
    """Make a class that stands for something of a library."""
    return StandIn(name, (), {"stands_in": True})


class LibraryModule(ModuleType):
    """A module of stand-ins."""

    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = stand_in(name)
        setattr(self, name, made)
        return made


class Libraries:
    """Finds and loads modules of stand-ins, for `sys.meta_path`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find a library, our models, or a part of them; nothing for all else."""
        is_model = f"{name}.".startswith(f"{MODELS}.") and not name.startswith(CONFIGURATIONS)
        if not (is_library(name) or is_model):
            return None
        return ModuleSpec(name, self, is_package=True)  # pyright: ignore[reportArgumentType]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make the module."""
        module = LibraryModule(spec.name)
        if f"{spec.name}.".startswith(f"{MODELS}."):
            below = spec.name.split(".")[2:]
            module.__path__ = [str(Path(__file__).parent.parent.joinpath("modeling", *below))]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: its names are made when they are asked for."""


@contextmanager
def without_libraries() -> Iterator[None]:
    """Import our modules without `LIBRARIES` inside, and forget them in the end.

    Where torch is imported already, there is no time to be saved, and nothing is different inside. Nor is it
    where other threads, as those of a notebook, could import a library meanwhile.
    """
    if "torch" in sys.modules or threading.active_count() > 1:
        yield
        return
    finder, before = Libraries(), dict(sys.modules)
    hidden = {name: module for name, module in before.items() if is_library(name)}
    for name in hidden:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)  # pyright: ignore[reportArgumentType]
    try:
        yield
    finally:
        sys.meta_path.remove(finder)  # pyright: ignore[reportArgumentType]
        for name in [*sys.modules]:
            if is_library(name) or (name.startswith(f"{PACKAGE}.") and name not in before):
                forget(name)
        sys.modules.update(hidden)


def is_library(name: str) -> bool:
    """Return whether a module belongs to one of `LIBRARIES`."""
    return name.partition(".")[0] in LIBRARIES


def forget(name: str) -> None:
    """Let the next import of a module load it anew."""
    package, _, last = name.rpartition(".")
    del sys.modules[name]
    if package in sys.modules and last in vars(sys.modules[package]):
        delattr(sys.modules[package], last)
