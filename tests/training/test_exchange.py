"""Processes that wait for each other: one that is lost or stuck ends the others with a line that says so."""

import time
from datetime import timedelta

import pytest

from tercet.data.steps.exchange import Timeout, explaining_lost_processes

STOPPED = """
import os, signal
from tercet.training import learning
from tests.training.conftest import ToyModel
from tests.training.toy_program import main

forward, calls = ToyModel.forward, []

def stop(model, *batch):
    calls.append(model.training)
    if sum(calls) == 5:
        os.kill(os.getpid(), signal.SIGSTOP)
    return forward(model, *batch)

if os.environ["RANK"] == "1":
    ToyModel.forward = stop
main()
"""


@pytest.mark.slow
def test_processes_end_within_the_timeout_when_one_does_not_answer(toys, tmp_path):
    folder = toys.prepare(tmp_path / "run", toys.recipe(steps=12, timeout=8))
    begin = time.monotonic()
    run = toys.server.start(STOPPED, str(folder), "0.1", "0", processes=2)
    assert toys.server.wait(run) == 1
    assert "TimeoutError: another process of the run has not answered for 8 s (training.timeout)" in (
        run.output.read_text()
    )
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        (
            "[unbound_buffer.cc:81] Timed out waiting 8000ms for recv operation",
            TimeoutError,
            "training.timeout",
        ),
        ("[pair.cc:547] Connection closed by peer [127.0.0.1]:5", ConnectionError, "has ended"),
        ("mat1 and mat2 shapes cannot be multiplied", RuntimeError, "mat1"),
    ],
)
def test_what_a_collective_says_is_told_in_the_words_of_a_run(said, kind, told, monkeypatch):
    monkeypatch.setattr(Timeout, "value", timedelta(seconds=8))
    with pytest.raises(kind, match=told), explaining_lost_processes():
        raise RuntimeError(said)
