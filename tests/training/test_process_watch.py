"""Processes that wait for each other: one that is stuck is named in time, and so is one that is slow."""

import os
import socket
import time

import pytest
from accelerate import Accelerator

from tercet.training.process_watch import COMPUTING, DATA, SAVING, ProcessWatch, describe

TROUBLED = """
import os, signal, time
from tercet.training import fit
from tests.training.conftest import ToyModel
from tests.training.toy_program import main

after, forward = fit._Run._after_step, ToyModel.forward

def stop(run, progress, metrics):
    after(run, progress, metrics)
    if progress.step == 3:
        {at_step_3}

def work(model, *batch):
    if model.training:
        {in_forward}
    return forward(model, *batch)

if os.environ["RANK"] == "1":
    fit._Run._after_step, ToyModel.forward = stop, work
main()
"""
NAME = f"process 1 on {socket.gethostname()}"


@pytest.fixture
def trouble(toys, tmp_path):
    """Run the toy in two processes of which the second has trouble; give the status and what was said."""

    def trouble(at_step_3="pass", in_forward="pass", **training):
        folder = toys.prepare(tmp_path / "run", toys.recipe(steps=12, log_every=2, **training))
        program = TROUBLED.format(at_step_3=at_step_3, in_forward=in_forward)
        run = toys.server.start(program, str(folder), "0.1", "0", processes=2)
        return toys.server.wait(run), run.output.read_text()

    return trouble


@pytest.mark.slow
def test_a_process_that_does_not_answer_is_named_within_the_timeout(trouble):
    begin = time.monotonic()
    status, said = trouble("os.kill(os.getpid(), signal.SIGSTOP)", timeout=8)
    assert status == 1
    assert f"no step has ended for 8 s (training.timeout): {NAME} does not answer." in said
    assert said.count("no step has ended") == 1
    assert time.monotonic() - begin < 60


@pytest.mark.slow
def test_a_slow_process_is_named_once(trouble):
    status, said = trouble(in_forward="time.sleep(0.2)")
    assert status == 0
    assert said.count(f"{NAME} is slow: it takes") == 1


@pytest.mark.parametrize(
    ("reports", "heard", "said"),
    [
        ([[9, 7, COMPUTING], [5, 7, COMPUTING], None], [1, 0, 0], "b, c do not answer"),
        (
            [[9, 7, COMPUTING], [9, 7, DATA], [9, 7, DATA]],
            [1, 1, 1],
            "b waits for the data of step 7, c waits",
        ),
        ([[9, 7, SAVING], [9, 7, SAVING], [9, 6, COMPUTING]], [1, 1, 1], "c computes in step 6"),
        ([[9, 7, SAVING], [9, 7, COMPUTING], [9, 7, SAVING]], [1, 1, 1], "b computes in step 7"),
        ([[9, 7, SAVING]] * 3, [1, 1, 1], "all processes are in step 7"),
    ],
)
def test_who_keeps_the_others_waiting_is_said(reports, heard, said):
    assert describe(["a", "b", "c"], reports, [*map(bool, heard)]).startswith(said)


@pytest.fixture
def watch(monkeypatch):
    """Make the watch of one process, which says what its neighbours are to have reported."""
    monkeypatch.setattr("tercet.training.process_watch.default_store", lambda: None)
    monkeypatch.setattr("tercet.training.process_watch.PrefixStore", lambda prefix, store: {})
    return ProcessWatch(Accelerator(cpu=True), 5.0, pytest.fail, measures_forward=True)


def test_who_is_far_above_the_median_three_times_in_a_row_is_slow(watch, monkeypatch):
    said = []
    watch.say, watch.names, watch.slow = said.append, ["a", "b", "c"], [0] * 3
    for seconds in ([1, 1, 2], [1, 1, 2], [1, 1, 1.4], [1, 2, 3], [1, 1, 3], [1, 1.4, 3], [1, 1, 3]):
        monkeypatch.setattr("tercet.training.process_watch.gather_object", lambda own, all=seconds: all)
        watch.compare()
    assert said == ["c is slow: it takes 3 s for its part of a step, the median process 1 s; all wait for it"]


def test_own_time_is_that_of_data_and_forward_passes(watch):
    for step in watch.watching(iter(["step"]), 4):
        assert (step, watch.step, watch.doing) == ("step", 4, COMPUTING)
        time.sleep(0.05)
        watch.before_exchange()
        time.sleep(0.2)
        break
    assert 0.05 <= watch.own_seconds < 0.2
    assert watch.num_steps == 1


def test_a_process_whose_launcher_is_gone_leaves(watch, monkeypatch):
    said = []

    def leave(line):
        said.append(line)
        watch.ended.set()

    monkeypatch.setattr("tercet.training.process_watch.leave", leave)
    monkeypatch.setattr("tercet.training.process_watch.LONGEST_BEAT", 0.01)
    monkeypatch.setattr(ProcessWatch, "_report", lambda watch: None)
    watch.parent = os.getppid() + 1
    watch._look()
    assert said == [f"{watch.names[0]}: its launcher (process {watch.parent}) is gone, so it ends"]
