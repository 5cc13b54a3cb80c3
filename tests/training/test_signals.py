"""A signal at an awkward moment: the run ends with a checkpoint even so, and continues as it would have."""

import os
import signal
import threading
import time

import pytest
from torch.utils.data import _utils

from tercet.training.checkpoints import checkpoint
from tercet.training.checkpoints.checkpoint import CHECKPOINTS, checkpoints, find_damage, read_state
from tercet.training.evaluation import HeldOut
from tercet.training.optimizers.schedules import build_schedule

from ..logs import timeless
from ..saved_weights import require_same_models

PATIENCE = 60
"""Seconds that a data source takes which does not answer."""


@pytest.fixture
def run(toys, tmp_path):
    """Train for six steps, with an evaluation after the third and a checkpoint after every second."""

    def run(name="run", *, measure=lambda model: {}, source=None, **changes):
        held_out = HeldOut(toys.Source(30, seed=1), {}, measure)
        recipe = toys.recipe(**{"checkpoint_every": 2, "evaluate_every": 3, "log_every": 4} | changes)
        return toys.train(tmp_path / name, recipe, source=source, held_out=held_out, resume=True)

    return run


@pytest.fixture
def continue_and_compare(run, toys, tmp_path):
    """Finish a run, and compare it with one that nobody disturbed."""

    def continue_and_compare():
        assert run().interrupted_by is None
        run("straight")
        require_same_models(
            *(tmp_path / name / CHECKPOINTS / "step-00000006" for name in ("run", "straight"))
        )
        assert timeless(tmp_path / "run") == timeless(tmp_path / "straight")

    return continue_and_compare


class Silent:
    """A data source that stops answering after so many examples."""

    def __init__(self, source, answers):
        self.source, self.answers, self.lengths = source, answers, source.lengths

    def __len__(self):
        return len(self.source)

    def __getitem__(self, index):
        self.answers -= 1
        if self.answers < 0:
            time.sleep(PATIENCE)
        return self.source[index]

    def epoch(self, number):
        return self


def signalled_once(number):
    """Send a signal in the first call, nothing later."""
    numbers = [number]

    def signalled(*arguments):
        if numbers:
            os.kill(os.getpid(), numbers.pop())
        return {}

    return signalled


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_an_evaluation_lets_it_finish(run, continue_and_compare, capsys, number):
    outcome = run(measure=signalled_once(number))
    told = f"{number.name}: stopped after step 3 of 6; resume from {outcome.checkpoint}"
    assert told in capsys.readouterr().err
    assert (outcome.interrupted_by, outcome.progress.step) == (number.name, 3)
    assert read_state(outcome.checkpoint)["scores"] == outcome.scores
    assert "token/loss" in outcome.scores
    continue_and_compare()


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_a_save_lets_it_finish(
    run, continue_and_compare, monkeypatch, tmp_path, number, is_async
):
    """Where the run goes on meanwhile, it also ends the step that it is in, and saves that."""
    notice, write_manifest = signalled_once(number), checkpoint.write_manifest

    def interrupted(folder):
        notice()
        write_manifest(folder)

    monkeypatch.setattr(checkpoint, "write_manifest", interrupted)
    outcome = run(async_checkpoints=is_async)
    assert outcome.interrupted_by == number.name
    assert outcome.progress.step in ((2, 3, 4) if is_async else (2,))
    found = checkpoints(tmp_path / "run" / CHECKPOINTS)
    assert found[-1] == outcome.checkpoint
    assert all(find_damage(path) is None for path in found)
    continue_and_compare()


def signal_after(path):
    """Send SIGTERM once a file is there, and a moment later, when the run waits again."""
    while not path.exists():
        time.sleep(0.01)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(("answers", "waits_after"), [(0, ""), (40, f"{CHECKPOINTS}/step-00000002")])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_signal_while_waiting_for_data_ends_the_waiting(
    run, toys, continue_and_compare, monkeypatch, tmp_path, answers, waits_after, num_workers
):
    """At the beginning, and after two steps."""
    monkeypatch.setattr(_utils, "MP_STATUS_CHECK_INTERVAL", 0.2)  # what a loader grants its workers, twice
    threading.Thread(target=signal_after, args=[tmp_path / "run" / waits_after], daemon=True).start()
    began = time.monotonic()
    outcome = run(source=Silent(toys.Source(), answers), num_workers=num_workers)
    assert (outcome.interrupted_by, outcome.progress.step > 0) == ("SIGTERM", answers > 0)
    assert time.monotonic() - began < PATIENCE / 2
    continue_and_compare()


def test_a_signal_while_a_run_is_prepared_ends_it_before_its_first_step(
    run, continue_and_compare, monkeypatch
):
    notice = signalled_once(signal.SIGTERM)

    def prepared(*arguments, **options):
        notice()
        return build_schedule(*arguments, **options)

    monkeypatch.setattr("tercet.training.learning.build_schedule", prepared)
    outcome = run()
    assert (outcome.interrupted_by, outcome.progress.step) == ("SIGTERM", 0)
    continue_and_compare()
