"""While steps are skipped, the checkpoints from before them are all that a run can go on from."""

import math
import os
import signal

import pytest
import torch

from tercet.training.checkpoints.checkpoint import CHECKPOINTS, best, checkpoints, read_state
from tercet.training.checkpoints.checkpoint_writer import CheckpointWriter
from tercet.training.evaluation import HeldOut


@pytest.fixture(params=[False, True], ids=["written at once", "written slowly"])
def run(request, toys, tmp_path, monkeypatch):
    """Train; at some step the weights become infinite, some steps have infinite losses, or a signal comes."""
    if request.param:
        monkeypatch.setattr(CheckpointWriter, "is_writing", lambda writer: writer.thread is not None)

    class Failing(toys.Objective):
        def __init__(self, blows_up_at, broken_steps, stop_at):
            super().__init__()
            self.blows_up_at, self.broken_steps, self.stop_at = blows_up_at, broken_steps, stop_at
            self.step = 0

        def losses(self, model, batch):
            self.step += 1
            if self.step == self.blows_up_at:
                with torch.no_grad():
                    next(model.parameters()).fill_(math.inf)
            if self.step == self.stop_at:
                os.kill(os.getpid(), signal.SIGTERM)
            sums = super().losses(model, batch)
            return sums | ({"token": sums["token"] / 0} if self.step in self.broken_steps else {})

    def run(*, blows_up_at=None, broken_steps=(), stop_at=None, resume=False, held_out=None, **changes):
        recipe = toys.recipe(**{"steps": 40, "tokens_per_micro_batch": 200, "checkpoint_every": 2} | changes)
        objective = Failing(blows_up_at, broken_steps, stop_at)
        return toys.train(tmp_path, recipe, objective=objective, resume=resume, held_out=held_out)

    return run


def kept(folder):
    return [read_state(path)["progress"]["step"] for path in checkpoints(folder / CHECKPOINTS)]


def test_broken_weights_push_out_no_checkpoint_of_good_ones(run, tmp_path):
    with pytest.raises(FloatingPointError, match=r"--resume goes on from step-00000020, from before them"):
        run(blows_up_at=22, keep_checkpoints=2)
    assert kept(tmp_path) == [18, 20]
    assert run(resume=True).progress.step == 40


def test_a_checkpoint_pushes_others_out_only_once_a_finite_step_followed(run, tmp_path):
    """That of step 20 has the weights with which step 21 fails."""
    with pytest.raises(FloatingPointError):
        run(broken_steps=range(21, 99), keep_checkpoints=1)
    assert kept(tmp_path) == [18, 20]


def test_a_checkpoint_that_comes_due_amid_skipped_steps_is_saved_after_them(run, tmp_path):
    run(broken_steps=[5, 6, 7], steps=9, checkpoint_every=3, keep_checkpoints=9)
    assert kept(tmp_path) == [3, 8, 9]


def test_the_best_evaluation_has_its_checkpoint_also_if_it_falls_on_a_skipped_step(run, tmp_path):
    given = iter([5.0, 1.0, 3.0, 4.0])
    held_out = HeldOut(measure=lambda model: {"loss": next(given)})
    outcome = run(
        broken_steps=[6, 7], steps=12, checkpoint_every=3, evaluate_every=3, keep_checkpoints=1,
        held_out=held_out,
    )  # fmt: skip
    chosen = best(tmp_path / CHECKPOINTS)
    assert chosen is not None
    assert read_state(chosen)["scores"] == {"loss": 1.0}
    assert read_state(chosen)["progress"]["step"] == outcome.progress.best_step == 8
    assert outcome.scores == {"loss": 4.0}


def test_without_a_checkpoint_from_before_the_message_offers_none(run, tmp_path):
    with pytest.raises(FloatingPointError, match="there is no checkpoint from before them: begin anew"):
        run(blows_up_at=1)
    assert kept(tmp_path) == []


@pytest.mark.parametrize(("every", "expected"), [(4, [4]), (None, [6])])
def test_a_signal_amid_skipped_steps_leaves_the_last_good_checkpoint_the_newest(
    run, tmp_path, capsys, every, expected
):
    """If there is one: otherwise all that was learned would be lost."""
    outcome = run(broken_steps=[5, 6, 7], stop_at=6, checkpoint_every=every)
    assert outcome.interrupted_by == "SIGTERM"
    assert kept(tmp_path) == expected
    assert f"resume from {outcome.checkpoint}" in capsys.readouterr().err


def test_a_run_whose_last_steps_are_skipped_deletes_nothing(run, tmp_path, capsys):
    run(blows_up_at=8, steps=10, keep_checkpoints=1)
    assert kept(tmp_path) == [6, 10]
    assert "the last steps were skipped" in capsys.readouterr().err
