"""The benchmark's modules, which are scripts beside the package, and its cases without their size."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def module(monkeypatch):
    """Give the function that imports one of them, as they import each other."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def load(name: str) -> ModuleType:
        return import_module(name)

    return load


@pytest.fixture(params=["encoder", "decoder", "seq2seq"])
def case(request, module):
    return module("cases").CASES[request.param].shrunk()
