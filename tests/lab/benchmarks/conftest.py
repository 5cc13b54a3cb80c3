"""The benchmarks' modules, which are scripts beside the package, and cases without their size."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from accelerate.state import AcceleratorState, PartialState

BENCHMARKS = Path(__file__).parents[3] / "lab/benchmarks"

WORDS = [f"{first}{second}" for first in "bdfgklmnprstvz" for second in ("a", "er", "in", "ost")]


@pytest.fixture
def module(monkeypatch):
    """Return the function that imports one of them, as they import each other."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def load(name: str) -> ModuleType:
        return import_module(name)

    return load


@pytest.fixture
def program():
    """Return the function that runs one of them with arguments, and returns what it printed."""

    def run(name: str, *arguments: object) -> str:
        command = [sys.executable, str(BENCHMARKS / name), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    return run


@pytest.fixture
def no_accelerator_remains():
    """Forget the accelerator afterwards, so that the next test can choose its precision."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState._reset_state()


@pytest.fixture(params=["encoder", "decoder", "seq2seq"])
def case(request, module):
    return module("cases").CASES[request.param].shrunk()


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """Write documents of random sentences, to learn from and to be judged by."""
    folder, rng = tmp_path_factory.mktemp("text"), np.random.default_rng(0)
    for split, size in (("train", 60), ("validation", 3)):
        (folder / split).mkdir()
        documents = ("\n".join(" ".join(rng.choice(WORDS, 9)) + "." for _ in range(30)) for _ in range(size))
        (folder / split / "text.txt").write_text("\n\n".join(documents))
    return folder
