"""Programs of lab/, cases without their size, and text."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from accelerate.state import AcceleratorState, PartialState

from lab.benchmarks.cases import CASES

ROOT = Path(__file__).parents[2]

WORDS = [f"{first}{second}" for first in "bdfgklmnprstvz" for second in ("a", "er", "in", "ost")]


@pytest.fixture
def program():
    """Return the function that runs one with arguments, and returns what it printed."""

    def run(name: str, *arguments: object) -> str:
        command = [sys.executable, "-m", f"lab.{name}", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout

    return run


@pytest.fixture
def no_accelerator_remains():
    """Forget the accelerator afterwards, so that the next test can choose its precision."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState._reset_state()


@pytest.fixture(params=["encoder", "decoder", "seq2seq"])
def case(request):
    return CASES[request.param].shrunk()


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """Write documents of random sentences, to learn from and to be judged by."""
    folder, rng = tmp_path_factory.mktemp("text"), np.random.default_rng(0)
    for split, size in (("train", 60), ("validation", 3)):
        (folder / split).mkdir()
        documents = ("\n".join(" ".join(rng.choice(WORDS, 9)) + "." for _ in range(30)) for _ in range(size))
        (folder / split / "text.txt").write_text("\n\n".join(documents))
    return folder
