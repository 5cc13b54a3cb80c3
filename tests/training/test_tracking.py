"""What a run tells of itself."""

import math
import shutil
import time

import pytest
import torch
from accelerate import Accelerator

from tercet.training.devices.precision import build_accelerator
from tercet.training.devices.utilization import Utilization, peak_memory
from tercet.training.tracking import LOG, Tracker, read_log, rewind


@pytest.fixture
def track(toys, tmp_path):
    """Track steps of these losses, some seconds apart; give the tracker, its progress and the log."""

    def track(*losses, seconds=0.0, start=0, steps=8, log_every=2, **changes):
        training = toys.state()
        training.num_steps, progress = steps, training.progress
        progress.step = training.metrics.step = start
        tracker = Tracker(training, tmp_path, log_every=log_every, **changes)
        for loss in losses:
            time.sleep(seconds)
            take(tracker, progress, loss)
        log = tmp_path / LOG
        return tracker, progress, read_log(log) if log.exists() else []

    return track


def take(tracker, progress, loss):
    """Take a step of 100 tokens; the norm of its gradient is its loss."""
    progress.step += 1
    progress.tokens += 100
    progress.skipped += not math.isfinite(loss)
    values = {"loss": loss, "mlm": loss, "grad_norm": loss, "learning_rate": 0.1 * progress.step}
    tracker.record_step({name: torch.tensor(value) for name, value in values.items()})


def test_a_record_holds_means_since_the_one_before(track):
    *_, records = track(4.0, 2.0, 1.0, 0.0)
    found = [(record["step"], record["loss"], record["mlm/loss"]) for record in records]
    assert found == [(2, 3, 3), (4, 0.5, 0.5)]
    assert [record["learning_rate"] for record in records] == pytest.approx([0.2, 0.4])
    assert [record["grad_norm"] for record in records] == [3, 0.5]


def test_a_step_that_is_not_finite_is_left_out_of_the_means_and_counted(track, capsys):
    *_, (record,) = track(4.0, math.nan, 3.0, log_every=3)
    assert (record["loss"], record["grad_norm"], record["skipped"]) == (3.5, 3.5, 1)
    assert ", 1 skipped, " in capsys.readouterr().err


def test_a_record_without_a_finite_step_has_no_mean(track):
    *_, records = track(math.inf, math.inf)
    assert [record["loss"] for record in records] == [None]


def test_pauses_are_not_counted(track):
    tracker, progress, _ = track(1.0)
    with tracker.paused():
        time.sleep(0.2)
    take(tracker, progress, 1.0)
    assert progress.seconds < 0.2


def test_speed_and_utilization_follow_from_tokens_and_time(track):
    utilization = Utilization(flops_per_token=50.0, peak_flops=1e6)
    *_, (record,) = track(1.0, 1.0, seconds=0.01, utilization=utilization)
    assert record["tokens_per_second"] == pytest.approx(200 / record["seconds"])
    assert record["utilization"] == pytest.approx(record["tokens_per_second"] * 50 / 1e6)
    assert record["flops"] == 50 * record["tokens"]


def test_a_resumed_run_drops_the_records_of_steps_that_it_takes_again(track, tmp_path):
    (tmp_path / LOG).write_text('{"step": 2}\n{"step": 4}\n{"step": 6}\n{"step": 8')
    *_, records = track(1.0, 1.0, start=4)
    assert [record["step"] for record in records] == [2, 4, 6]


def test_a_resumed_run_goes_on_in_its_trackers(toys, tmp_path, monkeypatch):
    """Under its name there, and in place of the steps that it takes again (accelerate, issue 2653)."""
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    recipe = toys.recipe(steps=4, checkpoint_every=2, log_every=1, trackers=("tensorboard",))
    told, begin = [], Accelerator.init_trackers

    def note(accelerator, name, *, init_kwargs):
        told.append((name, init_kwargs["wandb"], init_kwargs["trackio"]))
        begin(accelerator, name, init_kwargs=init_kwargs)

    monkeypatch.setattr(Accelerator, "init_trackers", note)
    for resume in (False, True):
        parts = toys.Model(), toys.Objective(), toys.Source(), recipe, tmp_path
        outcome = toys.fit(*parts, build_accelerator(recipe, tmp_path), resume=resume)
        shutil.rmtree(outcome.checkpoint)
    assert told[0] == told[1]
    assert told[0][1]["id"] in told[0][2]["name"]
    written = events.EventAccumulator(str(tmp_path / tmp_path.name))
    written.Reload()
    assert [event.step for event in written.Scalars("loss")] == [1, 2, 3, 4]


@pytest.mark.parametrize("damage", [b"\xff\xfe{", b"[1]", b'{"loss": 1}', b"\0\0\0", b'{"step": 2'])
def test_a_damaged_log_is_repaired_and_said_to_be(damage, tmp_path):
    path = tmp_path / LOG
    path.write_bytes(b'{"step": 1}\n' + damage + b'\n{"step": 3, "said": "a\\u2028b"}\n{"st')
    with pytest.warns(UserWarning, match=r"log.jsonl is damaged: 1 of its 3 lines are invalid \(line 2\)"):
        rewind(path, 9)
    assert [record["step"] for record in read_log(path)] == [1, 3]
    assert path.read_bytes().count(b"\n") == 2


def test_rewinding_a_missing_log_does_nothing(tmp_path):
    rewind(tmp_path / LOG, 3)
    assert not (tmp_path / LOG).exists()


def test_who_watches_without_a_terminal_reads_lines(track, capsys):
    tracker, *_ = track(3.0, 3.0)
    tracker.record_evaluation({"loss": 2.5, "mlm/targets": 7.0})
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("step 2/8: loss 3.0000, lr 2.00e-01, ")
    assert first.endswith(" left")
    assert second == "evaluation at step 2: loss 2.5"


def test_a_long_run_says_after_a_few_steps_how_long_it_will_take(track, capsys):
    track(3.0, 3.0, 3.0, 3.0, 3.0, seconds=0.03, steps=1000, log_every=1000, start=500)
    (line,) = capsys.readouterr().err.splitlines()
    minutes, seconds = map(int, line.split()[2].split(":")[1:])
    assert 0.03 * 496 <= 60 * minutes + seconds < 0.3 * 496
    assert "for 496 more steps, as measured on 3 of them" in line


def test_memory_is_in_mebibytes():
    assert 50 < peak_memory(torch.device("cpu")) < 100_000


def test_without_a_terminal_a_long_run_prints_a_dozen_lines(track, capsys, tmp_path):
    tracker, progress, _ = track(steps=1000, log_every=1)
    for step in range(1, 1001):
        take(tracker, progress, 3.0)
        if step % 10 == 0:
            tracker.record_evaluation({"loss": 2.5})
    told = capsys.readouterr().err.splitlines()
    lines = [line for line in told if not line.startswith("expected time: ")]  # a busy machine is slow
    steps = [int(line.split()[1].partition("/")[0]) for line in lines if line.startswith("step ")]
    assert steps == [1, 125, 250, 375, 500, 625, 750, 875, 1000]
    assert len(lines) == len(steps) + 5
    assert lines[-1] == "evaluation at step 1000: loss 2.5"
    assert len(read_log(tmp_path / LOG)) == 1100


@pytest.mark.parametrize("measured", [3.0, 1e9])
def test_no_run_is_faster_than_the_peak_and_one_that_was_too_low_is_measured_again(
    track, monkeypatch, measured
):
    monkeypatch.setattr("tercet.training.tracking.measure_peak", lambda device, precision: measured)
    utilization = Utilization(flops_per_token=50.0, peak_flops=2.0)
    tracker, _, (first, second) = track(*[1.0] * 4, seconds=0.005, utilization=utilization)
    if measured == 3.0:
        assert first["utilization"] == 1
        assert 0 < second["utilization"] <= 1
        assert tracker.utilization.peak_flops > 3
    else:
        assert first["utilization"] == pytest.approx(50 * first["tokens_per_second"] / 1e9)
