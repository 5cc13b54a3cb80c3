"""transformers' own test classes, from the source distribution of the installed version.

It holds the classes that its test files of all models share, without the two that these inherit from: exports
and generation. Laws of ours take their place (`laws.py`), unless TRANSFORMERS_TESTS names a whole checkout.
"""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import laws

NAME = "transformers_tests"
"""Under which the folder `tests` is imported, so that no other folder of that name is in its way."""

STAND_INS = {
    "exporters.test_export": {"ExportTesterMixin": laws.ExportLaws},
    "generation.test_utils": {"GenerationTesterMixin": laws.GenerationLaws},
}
"""Classes of ours by the module and the name under which transformers' classes import theirs."""


def load(folder: Path) -> ModuleType:
    """Import `test_modeling_common` from a folder `tests`, with our laws where modules are missing."""
    package = ModuleType(NAME)
    package.__path__ = [str(folder)]
    sys.modules[NAME] = package
    for module_name, classes in STAND_INS.items():
        if not (folder / f"{module_name.replace('.', '/')}.py").is_file():
            stand_in(f"{NAME}.{module_name}", classes)
    return importlib.import_module(f"{NAME}.test_modeling_common")


def stand_in(name: str, classes: dict[str, type]) -> None:
    """Provide a module, and the package it lies in, that holds these classes alone."""
    package, module = ModuleType(name.rpartition(".")[0]), ModuleType(name)
    package.__path__ = []
    vars(module).update(classes)
    sys.modules |= {package.__name__: package, name: module}


common = load(Path(os.environ["TRANSFORMERS_TESTS"]))
ModelTesterMixin = common.ModelTesterMixin
GenerationTesterMixin = sys.modules[f"{NAME}.generation.test_utils"].GenerationTesterMixin
