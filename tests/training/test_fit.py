"""Whole runs: resumed equals uninterrupted, and signals are heeded."""

import json

import pytest

from tercet.training.checkpoints.checkpoint import CHECKPOINTS, checkpoints, latest, read_state
from tercet.training.evaluation import HeldOut
from tercet.training.recipe import ScheduleRecipe
from tercet.training.tracking import LOG, read_log

from ..logs import timeless
from ..saved_weights import moments_in, require_same, weights_in


@pytest.fixture
def here(toys, tmp_path):
    def here(name="run", *, resume=False, measure=lambda model: {}, **changes):
        held_out = HeldOut(toys.Source(30, seed=1), {"token": 99}, measure)
        return toys.train(tmp_path / name, toys.recipe(**changes), held_out=held_out, resume=resume)

    return here


def newest_checkpoint(folder):
    newest = latest(folder / CHECKPOINTS)
    assert newest is not None
    return newest


def weights(folder, step):
    return weights_in(folder / CHECKPOINTS / f"step-{step:08d}")


def test_a_run_that_begins_anew_leaves_an_earlier_one_alone(here):
    earlier = here(steps=2).checkpoint
    with pytest.raises(ValueError, match="has step-00000002 of an earlier run: resume it"):
        here(steps=3)
    assert checkpoints(earlier.parent) == [earlier]
    assert here(steps=3, resume=True).progress.step == 3


def test_a_resumed_run_in_a_new_process_equals_an_uninterrupted_one_bit_for_bit(toys, tmp_path):
    """With dropout, shuffling, hiding, evaluations in between, and an epoch's end in the second half."""
    recipe = toys.recipe(evaluate_every=2, log_every=1)
    straight, halves = (toys.prepare(tmp_path / name, recipe) for name in ("straight", "halves"))
    steps = ["steps=10", "schedule.warmup_steps=3", "schedule.kind=inverse_square_root", "keep_checkpoints=9"]
    runs = [toys.run(straight, *steps), toys.run(halves, *steps, "steps=5", "schedule.warmup_steps=3")]
    for run in runs:
        toys.finish(run)
    toys.finish(toys.run(halves, *steps, resume=True))
    require_same(weights(halves, 10), weights(straight, 10))
    assert read_state(newest_checkpoint(straight))["progress"]["epoch"] == 1
    require_same(*(moments_in(newest_checkpoint(folder)) for folder in (halves, straight)))
    records = [[r["loss"] for r in read_log(f / LOG) if "loss" in r] for f in (straight, halves)]
    assert len(records[0]) == 10
    assert records[0] == records[1]


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_a_run_resumed_twice_across_epochs_equals_an_uninterrupted_one(here, toys, tmp_path, num_workers):
    """An epoch has eight steps: one resumption falls into it, one into the next."""
    constant = ScheduleRecipe(kind="constant", warmup_steps=2)
    settings = {"schedule": constant, "log_every": 1, "num_workers": num_workers, "evaluate_every": 4}
    here("whole", steps=14, **settings)
    for steps in (3, 10, 14):
        here("parts", steps=steps, **settings, resume=True)
    require_same(weights(tmp_path / "parts", 14), weights(tmp_path / "whole", 14))
    parts, whole = (timeless(tmp_path / name) for name in ("parts", "whole"))
    # The parts were evaluated at their ends, too.
    assert [record for record in parts if record in whole] == whole


def test_a_resumed_run_counts_the_operations_of_the_whole_one(here, tmp_path):
    """They are counted in one batch, and the batch with which a run is resumed is another."""
    settings = {"measure_utilization": True, "peak_flops": 1e12, "log_every": 1}
    here("whole", steps=6, **settings)
    for steps in (3, 6):
        here("parts", steps=steps, **settings, resume=True)
    whole, parts = (
        [record.get("flops") for record in read_log(tmp_path / name / LOG)] for name in ("whole", "parts")
    )
    assert [flops for flops in parts if flops] == [flops for flops in whole if flops]
    assert len(set(whole) - {None}) == 6


def test_a_resumed_run_says_what_changed(here, tmp_path, capsys):
    here(steps=2)
    capsys.readouterr()
    here(steps=4, num_workers=1, resume=True)
    told = capsys.readouterr().err.splitlines()
    assert told[0] == f"resuming from {tmp_path / 'run' / CHECKPOINTS / 'step-00000002'}"
    assert told[1:3] == ["  training.steps: 4, was 2", "  training.num_workers: 1, was auto"]


def test_the_log_tells_of_steps_and_evaluations(here, tmp_path):
    outcome = here(steps=6, log_every=2, evaluate_every=3)
    records = read_log(tmp_path / "run" / LOG)
    assert [record["step"] for record in records] == [2, 3, 4, 6, 6]
    assert records[1]["evaluation/token/bits_per_byte"] > 0
    assert records[-1]["evaluation/loss"] == outcome.scores["loss"]
    assert {"loss", "token/loss", "length/loss", "grad_norm", "learning_rate", "tokens", "epoch"} < records[
        0
    ].keys()
    assert records[0]["learning_rate"] > records[3]["learning_rate"] > 0
    assert records[3]["seconds"] > records[0]["seconds"] > 0


def test_evaluating_and_saving_do_not_change_what_is_learned(here, tmp_path):
    here("often", evaluate_every=1, checkpoint_every=1)
    here("once")
    require_same(weights(tmp_path / "often", 6), weights(tmp_path / "once", 6))


def test_the_rate_of_an_update_is_the_one_that_is_logged(here, tmp_path):
    here(steps=4, log_every=1)
    rates = [record["learning_rate"] for record in read_log(tmp_path / "run" / LOG) if "loss" in record]
    assert rates == pytest.approx([5e-4 * part for part in (4 / 5, 3 / 5, 2 / 5, 1 / 5)])


def test_the_best_checkpoint_has_the_lowest_held_out_loss(here, tmp_path):
    here(steps=6, evaluate_every=2, checkpoint_every=2, keep_checkpoints=3)
    scores = {
        r["step"]: r["evaluation/loss"] for r in read_log(tmp_path / "run" / LOG) if "evaluation/loss" in r
    }
    for path in checkpoints(tmp_path / "run" / CHECKPOINTS):
        state = read_state(path)
        assert state["scores"]["loss"] == scores[state["progress"]["step"]]


def test_a_finished_run_that_is_resumed_only_tells_its_scores(here, tmp_path):
    first = here()
    log = (tmp_path / "run" / LOG).read_text()
    again = here(resume=True, measure=lambda model: {"never": 1.0})
    assert again.scores == first.scores
    assert (tmp_path / "run" / LOG).read_text() == log
    assert again.progress.step == 6
    assert again.checkpoint == first.checkpoint


def test_resuming_in_another_order_of_data_is_refused(here):
    here(steps=2)
    with pytest.raises(ValueError, match=r"training.seed = 5, but .* was made with 0: resume with that"):
        here(seed=5, resume=True)


def test_noam_derives_the_rate_from_the_width(here, toys, tmp_path):
    here(steps=4, log_every=4, schedule=ScheduleRecipe(kind="noam", warmup_steps=4))
    record = json.loads((tmp_path / "run" / LOG).read_text().splitlines()[0])
    assert record["learning_rate"] == pytest.approx((toys.width * 4) ** -0.5)


def test_intermediate_models_that_nobody_keeps_are_refused(toys, tmp_path):
    with pytest.raises(ValueError, match=r"training\.revisions is for `tercet pretrain` alone"):
        toys.train(tmp_path, toys.recipe(revisions=2))
