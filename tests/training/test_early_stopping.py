"""Runs that end when no evaluation gives anything better, and the checkpoint that is the best."""

import math

import pytest
import torch

from tercet.training.checkpoints.checkpoint import CHECKPOINTS, best, checkpoints, latest, read_state
from tercet.training.evaluation import HeldOut
from tercet.training.loop import Progress
from tercet.training.tracking import LOG, read_log

from ..saved_weights import require_same_models

FALLS_THEN_RISES = (4.0, 2.0, 3.0, 2.0, 5.0, 1.0)
"""Criteria of the evaluations of a run: the second is the best until the sixth."""


class DeathError(RuntimeError):
    """Stands for the death of a process: nothing is finished or saved after it."""


@pytest.fixture
def run(toys, tmp_path):
    """Run in this process, with evaluations that give what the test says."""

    def run(criteria, name="run", *, killed_at=math.inf, resume=False, best_is_highest=False, **changes):
        given = iter(criteria)
        sign = -1 if best_is_highest else 1
        torch.manual_seed(0)
        model = toys.Model(0.1)
        steps = 0

        def collapse(module, arguments):
            nonlocal steps
            steps += model.training
            if steps > killed_at:
                raise DeathError

        model.register_forward_pre_hook(collapse)
        fixed = {"steps": 12, "evaluate_every": 2, "checkpoint_every": 1, "tokens_per_micro_batch": None}
        measures = {
            "measure": lambda model: {"found": sign * next(given)},
            "criterion": lambda scores: sign * scores["found"],
        }
        recipe, held_out = toys.recipe(**(fixed | changes)), HeldOut(**measures)
        return toys.train(tmp_path / name, recipe, model=model, resume=resume, held_out=held_out)

    return run


def assert_same_end(found, expected):
    for field in ("step", "checksum", "best", "evaluations_since", "epoch", "step_in_epoch"):
        assert getattr(found.progress, field) == getattr(expected.progress, field), field
    assert found.scores == expected.scores
    require_same_models(found.checkpoint, expected.checkpoint)


@pytest.mark.parametrize(("patience", "steps"), [(1, 6), (2, 8), (3, 10), (4, 12), (None, 12)])
def test_a_run_ends_when_its_patience_does(run, patience, steps):
    """Equal to the best is not better: the fourth evaluation, at step 8, wears patience out, too."""
    outcome = run(FALLS_THEN_RISES, patience=patience)
    assert outcome.progress.step == steps
    assert outcome.interrupted_by is None
    assert read_state(outcome.checkpoint)["progress"]["step"] == steps
    assert outcome.scores == {"found": FALLS_THEN_RISES[steps // 2 - 1]}


def test_a_run_is_trained_the_same_with_patience_or_without(run, tmp_path):
    early = run(FALLS_THEN_RISES, "early", patience=2)
    whole = run(FALLS_THEN_RISES, "whole", keep_checkpoints=12)
    require_same_models(whole.checkpoint.with_name(early.checkpoint.name), early.checkpoint)


@pytest.mark.parametrize("killed_at", [4, 5, 6, 7])
def test_a_run_killed_anywhere_and_resumed_stops_where_the_straight_one_does(run, killed_at):
    straight = run(FALLS_THEN_RISES, "straight", patience=2)
    with pytest.raises(DeathError):
        run(FALLS_THEN_RISES, "parts", patience=2, killed_at=killed_at)
    assert_same_end(run(FALLS_THEN_RISES[killed_at // 2 :], "parts", patience=2, resume=True), straight)


def test_an_early_end_is_an_end(run, tmp_path):
    """Resumed, the run neither trains nor measures; with more patience it goes on as if nothing had been."""
    first = run(FALLS_THEN_RISES, patience=2)
    log = (tmp_path / "run" / LOG).read_text()
    again = run([], patience=2, resume=True)
    assert_same_end(again, first)
    assert again.checkpoint == first.checkpoint
    assert (tmp_path / "run" / LOG).read_text() == log
    assert_same_end(
        run(FALLS_THEN_RISES[4:], patience=4, resume=True), run(FALLS_THEN_RISES, "whole", patience=4)
    )


def test_an_early_end_is_said_and_its_last_steps_are_in_the_log(run, tmp_path, capsys):
    run(FALLS_THEN_RISES, patience=2, log_every=5)
    *_, evaluation, step, told = capsys.readouterr().err.splitlines()
    assert evaluation == "evaluation at step 8: found 2"
    assert step.startswith("step 8/12: loss ")
    stopped = (
        "early stopping after step 8 of 12: training.patience = 2, and no later evaluation was better than "
        "that after step 4"
    )
    assert told == stopped
    records = read_log(tmp_path / "run" / LOG)
    assert [record["step"] for record in records if "loss" in record] == [5, 8]
    run([], patience=2, log_every=5, resume=True)
    *_, told = capsys.readouterr().err.splitlines()
    assert told == f"{stopped}; no step was taken: raise training.patience, or set it to null, to go on"
    run(FALLS_THEN_RISES[4:], log_every=5, resume=True)
    assert "early stopping" not in capsys.readouterr().err


@pytest.mark.parametrize("best_is_highest", [False, True])
def test_the_best_checkpoint_stays_until_a_better_one_comes(run, tmp_path, best_is_highest):
    folder = tmp_path / "run" / CHECKPOINTS
    outcome = run(FALLS_THEN_RISES, patience=3, keep_checkpoints=1, best_is_highest=best_is_highest)
    assert [path.name for path in checkpoints(folder)] == ["step-00000004", "step-00000010"]
    assert best(folder) == folder / "step-00000004"
    assert outcome.checkpoint == latest(folder) == folder / "step-00000010"
    run(FALLS_THEN_RISES[5:], keep_checkpoints=1, resume=True, best_is_highest=best_is_highest)
    assert checkpoints(folder) == [folder / "step-00000012"]


def test_what_is_no_number_is_never_better():
    progress = Progress()
    for criterion in (math.nan, math.inf):
        progress.judge(criterion)
    assert (progress.best, progress.evaluations_since) == (None, 2)
    for criterion in (3.0, math.nan, 3.0):
        progress.judge(criterion)
    assert (progress.best, progress.evaluations_since) == (3.0, 2)
    progress.judge(-math.inf)
    assert (progress.best, progress.evaluations_since) == (-math.inf, 0)


def test_patience_that_nothing_wears_out_is_refused(toys):
    with pytest.raises(ValueError, match="patience = 3, but there is no evaluation before the end"):
        toys.recipe(patience=3)


def test_all_processes_judge_by_the_scores_of_the_main_one(toys, tmp_path):
    """The main one loses its patience after three evaluations; the other one never would."""
    toys.prepare(tmp_path, toys.recipe(steps=9, evaluate_every=1, patience=2))
    said = toys.finish(toys.run(tmp_path, processes=2, disagree=True))
    for part in ("step=3,", "best=1.0, evaluations_since=2", "scores={'mind': 3.0}"):
        assert said.count(part) == 2, said
