"""The loop: exact sums, and steps without a finite gradient."""

import math
from functools import partial

import pytest
import torch
from accelerate import Accelerator
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import ConstantLR

from tercet.data.steps.batches import StepDataset, endless_steps
from tercet.training import skipping
from tercet.training.loop import Progress, Training, accumulate_gradients, poisoned_if_not_finite, train

LIMIT = 10_000
"""Tokens of a micro-batch that holds a whole step."""


@pytest.fixture
def run(toys, source):
    """Train a fresh toy model for some steps; give it with the progress and the metrics of every step."""

    def run(
        objective,
        *,
        steps=3,
        limit=LIMIT,
        rate=0.1,
        progress=None,
        optimizer_class=SGD,
        should_stop=lambda: False,
        **limits,
    ):
        torch.manual_seed(0)
        model = toys.Model()
        data = StepDataset(source, objective, tokens_per_step=200, tokens_per_micro_batch=limit, seed=0)
        optimizer = optimizer_class(model.parameters(), lr=rate)
        progress = progress or Progress()
        history = []
        train(
            Training(
                model, objective, optimizer, ConstantLR(optimizer, 1.0), Accelerator(cpu=True), steps,
                progress=progress, **limits,
            ),
            endless_steps(data, progress.cursor),
            [lambda metrics: history.append({k: v.item() for k, v in metrics.items()})],
            should_stop,
        )  # fmt: skip
        return model, progress, history

    return run


class Broken:
    """An objective whose loss is spoiled in some steps."""

    def __init__(self, objective, spoil, when):
        self.objective, self.spoil, self.when, self.calls = objective, spoil, when, 0
        self.weights = objective.weights

    def __getattr__(self, name):
        return getattr(self.objective, name)

    def losses(self, model, batch):
        self.calls += 1
        losses = self.objective.losses(model, batch)
        return {k: self.spoil(v) for k, v in losses.items()} if self.calls in self.when else losses


def as_nan(loss):
    return loss * math.nan


def as_infinity_with_a_finite_gradient(loss):
    return loss + math.inf


@pytest.mark.parametrize("limit", [20, 60, 100])
def test_micro_batches_of_ragged_targets_sum_to_the_whole_step(run, objective, limit):
    whole, _, metrics = run(objective)
    parts, _, metrics_of_parts = run(objective, limit=limit)
    for expected, found in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(found, expected)
    for expected, found in zip(metrics, metrics_of_parts, strict=True):
        assert found == pytest.approx(expected, rel=1e-5)


def test_the_loss_is_the_weighted_sum_of_means_over_targets(toys, source, objective):
    step = StepDataset(source, objective, tokens_per_step=200, tokens_per_micro_batch=50, seed=0)[0, 0]
    model = toys.Model()
    metrics = accumulate_gradients(model, objective, step, Accelerator(cpu=True))
    gradient = model.hidden.weight.grad.clone()
    model.zero_grad()
    batches = step.micro_batches(torch.device("cpu"))
    sums = [objective.losses(model, batch) for batch in batches]
    means = {
        name: torch.stack([part[name] for part in sums]).sum() / step.targets[name]
        for name in objective.weights
    }
    loss = means["token"] + 0.5 * means["length"]
    loss.backward()
    assert metrics["loss"].item() == pytest.approx(loss.item())
    assert metrics["token"].item() == pytest.approx(means["token"].item())
    torch.testing.assert_close(gradient, model.hidden.weight.grad)


def test_a_process_without_an_example_of_the_last_step_adds_nothing(toys, source, objective):
    source.rows, source.lengths = source.rows[:1], source.lengths[:1]
    sizes = {"examples_per_step": 5, "tokens_per_step": 50, "tokens_per_micro_batch": 50, "seed": 0}
    step = StepDataset(source, objective, **sizes, num_processes=2, process_index=1)[0, 0]
    model = toys.Model()
    metrics = accumulate_gradients(model, objective, step, Accelerator(cpu=True))
    assert all(value == 0 for value in metrics.values())
    assert all(not weight.grad.any() for weight in model.parameters())


def test_progress_counts_what_was_seen(run, objective, source):
    progress = run(objective, steps=8)[1]
    assert (progress.step, progress.examples, progress.tokens) == (8, len(source), source.lengths.sum())
    assert progress.cursor == (0, 8, 8), "an epoch of eight steps"
    assert progress.targets > len(source)


def test_progress_survives_a_checkpoint():
    again = Progress()
    again.load_state_dict(Progress(3, 4, 5, 6, 1, 2, 0, 1, 7, 1.5).state_dict())
    assert again == Progress(3, 4, 5, 6, 1, 2, 0, 1, 7, 1.5)


@pytest.mark.parametrize("spoil", [as_nan, as_infinity_with_a_finite_gradient])
@pytest.mark.parametrize("limit", [LIMIT, 60])
@pytest.mark.parametrize("optimizer_class", [SGD, partial(AdamW, fused=True)])
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_a_step_that_is_not_finite_leaves_the_weights_alone(run, objective, spoil, limit, optimizer_class):
    model, progress, _ = run(
        Broken(objective, spoil, {1}), steps=1, limit=limit, optimizer_class=optimizer_class
    )
    start, _, _ = run(objective, steps=0)
    for expected, found in zip(start.parameters(), model.parameters(), strict=True):
        assert torch.equal(found, expected)
    assert (progress.step, progress.skipped) == (1, 1)


def test_a_skipped_step_does_not_count_for_adam(run, objective):
    adam = partial(AdamW, fused=True)
    skipping, progress, _ = run(Broken(objective, as_nan, {2}), steps=2, optimizer_class=adam)
    expected, _, _ = run(objective, steps=1, optimizer_class=adam)
    assert progress.skipped == 1
    for left, right in zip(expected.parameters(), skipping.parameters(), strict=True):
        assert torch.equal(left, right)


def test_training_goes_on_after_a_broken_step(run, objective):
    model, progress, history = run(Broken(objective, as_nan, {2}), steps=3)
    assert progress.skipped == 1
    assert math.isnan(history[1]["loss"])
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_too_many_broken_steps_in_a_row_end_the_run(run, objective):
    progress = Progress()
    with pytest.raises(
        FloatingPointError, match=r"not finite in 3 steps in a row, up to step 5: lower the learning"
    ):
        run(Broken(objective, as_nan, {1, 3, 4, 5}), steps=9, max_skipped_steps=3, progress=progress)
    assert progress.step == 5


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_broken_steps_in_a_row_are_counted_across_a_restart(run, objective):
    progress = Progress()
    run(Broken(objective, as_nan, {1, 2}), steps=2, max_skipped_steps=3, progress=progress)
    assert (progress.skipped, progress.skipped_in_a_row) == (2, 2)
    with pytest.raises(FloatingPointError, match="not finite in 3 steps in a row, up to step 3"):
        run(Broken(objective, as_nan, {1}), steps=9, max_skipped_steps=3, progress=progress)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize(
    ("broken", "steps", "message"),
    [
        ({2, 3, 4}, 20, "3 steps in a row, before step 8"),
        ({2, 3, 4}, 5, "3 steps in a row, before step 5"),
        (range(3, 99), 6, "4 steps in a row, up to step 6"),
    ],
)
def test_where_counts_are_read_now_and_then_no_streak_is_missed(
    run, objective, monkeypatch, broken, steps, message
):
    monkeypatch.setitem(skipping.READ_EVERY, "cpu", 8)
    with pytest.raises(FloatingPointError, match=message):
        run(Broken(objective, as_nan, broken), steps=steps, max_skipped_steps=3)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_where_counts_are_read_now_and_then_a_run_that_stops_has_all(run, objective, monkeypatch):
    monkeypatch.setitem(skipping.READ_EVERY, "cpu", 8)
    progress = Progress()
    steps = (progress.step >= number for number in (2, 2))
    run(Broken(objective, as_nan, {1, 2}), steps=9, progress=progress, should_stop=lambda: next(steps))
    state = progress.state_dict()
    assert (state["step"], state["skipped"], state["skipped_in_a_row"]) == (2, 2, 2)
    with pytest.raises(FloatingPointError, match="3 steps in a row, up to step 3"):
        run(
            Broken(objective, as_nan, {1}), steps=9, max_skipped_steps=3, progress=progress,
            should_stop=lambda: progress.step == 3,
        )  # fmt: skip


def test_a_streak_that_ended_in_an_earlier_run_is_none_of_a_lower_limit(run, objective):
    progress = Progress(skipped=3, skipped_in_a_row=3)
    run(objective, steps=2, max_skipped_steps=2, progress=progress)
    assert (progress.skipped, progress.skipped_in_a_row) == (3, 0)


def test_a_finite_loss_is_not_changed_by_the_check():
    loss = torch.tensor(3.7, requires_grad=True)
    poisoned_if_not_finite(loss).backward()
    assert poisoned_if_not_finite(loss).item() == loss.item()
    assert loss.grad == 1.0


def test_gradients_are_shortened_to_the_limit(run, objective):
    start, _, _ = run(objective, steps=0)
    model, _, history = run(objective, steps=1, rate=1.0, max_grad_norm=0.01)
    moved = [a - b for a, b in zip(model.parameters(), start.parameters(), strict=True)]
    assert history[0]["grad_norm"] > 0.01
    assert nn.utils.get_total_norm(moved).item() == pytest.approx(0.01, rel=1e-3)


def test_the_loop_stops_when_asked(run, objective):
    asked = iter([False, False, True])
    assert run(objective, steps=9, should_stop=lambda: next(asked))[1].step == 3
