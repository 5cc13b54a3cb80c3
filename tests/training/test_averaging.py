"""Averages of weights: a moving one and the mean of the last checkpoints, in runs and after interruptions."""

import signal
from itertools import count

import pytest
import torch

from tercet.training.checkpoints.checkpoint import CHECKPOINTS, checkpoints, read_state
from tercet.training.evaluation import HeldOut
from tercet.training.optimizers.averaging import WeightAverage, moving_share
from tercet.training.recipe import ScheduleRecipe
from tercet.training.tracking import LOG, read_log

from ..saved_weights import require_same, weights_in

CONSTANT = ScheduleRecipe(kind="constant", warmup_steps=1)
STEADY = {"checkpoint_every": 2, "keep_checkpoints": 3, "log_every": 1, "schedule": CONSTANT}
AVERAGES = {"ema_decay": 0.8, "average_checkpoints": 3, "final_weights": "ema"}


@pytest.fixture
def run(toys, tmp_path):
    def run(name="run", *, measure=lambda model: {}, criterion=None, resume=False, **changes):
        held_out = HeldOut(measure=measure, **({"criterion": criterion} if criterion else {}))
        recipe = toys.recipe(**({"steps": 9} | STEADY | changes))
        return toys.train(tmp_path / name, recipe, held_out=held_out, resume=resume)

    return run


def weights(outcome, kind="model"):
    return weights_in(outcome.checkpoint, kind)


def test_the_moving_average_is_a_weighted_mean_of_the_weights_after_each_step(run):
    """With weights d^(t-1), ..., d, 1: those before the first step have no part."""
    seen = []
    outcome = run(
        ema_decay=0.8, evaluate_every=1, measure=lambda model: seen.append(model.hidden.weight.clone()) or {}
    )
    own, averages = seen[::2], seen[1::2]
    assert len(own) == len(averages) == 9
    for step, average in enumerate(averages, start=1):
        shares = torch.tensor([0.8 ** (step - i) for i in range(1, step + 1)], dtype=torch.float64)
        expected = torch.einsum("t,tij->ij", shares / shares.sum(), torch.stack(own[:step]).double())
        torch.testing.assert_close(average.detach().double(), expected, rtol=0, atol=1e-6)
    assert torch.equal(averages[0], own[0])
    assert torch.equal(weights(outcome, "ema")["hidden.weight"], averages[-1])


def test_no_device_is_waited_for():
    assert moving_share(0.5, 4, torch.tensor(2, device="meta"), torch.tensor(0, device="meta")).is_meta
    with torch.device("meta"):
        average = WeightAverage(torch.nn.Linear(2, 2))
        average.add(torch.tensor(0.5, dtype=torch.float64))


def test_skipped_steps_have_no_part_in_the_moving_average(toys, tmp_path):
    """Also not in the part of a run that is resumed behind them."""
    broken = {1, 2, 5, 6}

    class Failing(toys.Objective):
        step = 0

        def losses(self, model, batch):
            self.step += 1
            sums = super().losses(model, batch)
            return sums | ({"token": sums["token"] / 0} if self.step in broken else {})

    objective, seen = Failing(), []

    def keep(model):
        seen.append(model.hidden.weight.clone())
        return {}

    def train(steps, resume):
        recipe = toys.recipe(
            **STEADY | {"checkpoint_every": 1}, steps=steps, ema_decay=0.8, evaluate_every=1,
            tokens_per_micro_batch=None,
        )  # fmt: skip
        held_out = HeldOut(measure=keep)
        return toys.train(tmp_path, recipe, objective=objective, held_out=held_out, resume=resume)

    train(4, resume=False)
    outcome = train(8, resume=True)
    own, average = torch.stack(seen[::2]).double(), weights(outcome, "ema")["hidden.weight"].double()
    assert (len(own), outcome.progress.skipped) == (4, 4)
    shares = 0.8 ** torch.arange(3, -1, -1, dtype=torch.float64)
    expected = torch.einsum("t,tij->ij", shares / shares.sum(), own)
    torch.testing.assert_close(average, expected, rtol=0, atol=1e-6)


def test_averaging_changes_nothing_of_what_is_learned(run):
    plain, averaged = run("plain", evaluate_every=2), run("averaged", evaluate_every=2, **AVERAGES)
    require_same(weights(averaged), weights(plain))
    assert not (plain.checkpoint / "ema.safetensors").exists()


def test_averages_are_scored_beside_the_weights(run, tmp_path):
    def norm(model):
        return {"norm": float(model.hidden.weight.detach().norm())}

    outcome = run(evaluate_every=3, measure=norm, **AVERAGES)
    records = [record for record in read_log(tmp_path / "run" / LOG) if "loss" not in record]
    names = [{name for name in record if name.startswith("evaluation/")} for record in records]
    assert names == [{"evaluation/norm", "evaluation/ema/norm"}] * 3 + [{"evaluation/mean/norm"}]
    for kind, name in (("model", "norm"), ("ema", "ema/norm"), ("mean", "mean/norm")):
        expected = float(weights(outcome, kind)["hidden.weight"].norm())
        assert outcome.scores[name] == pytest.approx(expected, rel=1e-6)
    assert read_state(outcome.checkpoint)["scores"] == outcome.scores


@pytest.mark.parametrize(("final", "steps"), [("ema", 3), ("last", 9)])
def test_patience_follows_the_weights_that_are_handed_over(run, final, steps):
    """Those of the last step get better and better here, their average gets worse."""
    calls = iter(range(100))

    def measure(model):
        call = next(calls)
        return {"found": float(call if call % 2 else -call)}

    outcome = run(
        ema_decay=0.9, final_weights=final, evaluate_every=1, patience=2, measure=measure,
        criterion=lambda scores: scores["found"],
    )  # fmt: skip
    assert outcome.progress.step == steps


@pytest.mark.parametrize("stop", [1, 4, 5])
def test_a_resumed_run_has_the_same_averages_as_an_uninterrupted_one(run, stop):
    """Also the same mean: the checkpoint that a shorter run has left at its end has no part in it."""
    straight = run("straight", **AVERAGES)
    run("parts", steps=stop, ema_decay=0.8)
    resumed = run("parts", resume=True, **AVERAGES)
    for kind in ("model", "ema", "mean"):
        require_same(weights(resumed, kind), weights(straight, kind))


def test_a_signal_leaves_no_trace_in_the_mean(run, tmp_path):
    def stop(model):
        if not (calls := next(calls_of_step)):
            signal.raise_signal(signal.SIGTERM)  # a second one would end the process
        return {"calls": calls}

    straight = run("straight", **AVERAGES)
    for step in (5, 7):
        calls_of_step = count()
        halted = run("halted", evaluate_every=step, measure=stop, resume=step > 5, **AVERAGES)
        assert (halted.interrupted_by, halted.progress.step) == ("SIGTERM", step)
    resumed = run("halted", resume=True, **AVERAGES)
    require_same(weights(resumed, "mean"), weights(straight, "mean"))


def test_the_mean_is_of_the_end_and_the_last_checkpoints_that_were_due(run, tmp_path):
    outcome = run(average_checkpoints=3, keep_checkpoints=4)
    kept = {path.name: path for path in checkpoints(tmp_path / "run" / CHECKPOINTS)}
    averaged = [weights_in(kept[f"step-0000000{step}"])["hidden.weight"] for step in (6, 8, 9)]
    expected = torch.stack(averaged).double().mean(dim=0)
    found = weights(outcome, "mean")["hidden.weight"].double()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)


def test_a_finished_run_keeps_its_mean(run):
    first = run(measure=lambda model: {"a": 1.0}, **AVERAGES)
    again = run(measure=lambda model: {"never": 1.0}, resume=True, **AVERAGES)
    assert again.scores == first.scores == {"a": 1.0, "ema/a": 1.0, "mean/a": 1.0}


@pytest.mark.parametrize(("earlier", "number"), [({"ema_decay": 0.8}, 3), (AVERAGES, 2)])
def test_a_finished_run_can_be_averaged_afterwards_and_over_another_number(run, earlier, number):
    straight = run("straight", **AVERAGES | {"average_checkpoints": number})
    run("later", **earlier)
    again = run("later", resume=True, **AVERAGES | {"average_checkpoints": number})
    require_same(weights(again, "mean"), weights(straight, "mean"))


def test_damaged_checkpoints_are_left_out_of_the_mean(run, tmp_path):
    run(ema_decay=0.8)
    damaged = checkpoints(tmp_path / "run" / CHECKPOINTS)[-2]
    (damaged / "model.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"is damaged: .* it is left out|1 checkpoints to average, not 2"):
        outcome = run(resume=True, **AVERAGES)
    assert weights(outcome, "mean").keys() == weights(outcome).keys()
