"""The stages of a run: which steps they take, from what, and that a run can stop and go on in any of them."""

import signal
from dataclasses import replace
from itertools import islice

import pytest
import torch
from accelerate import Accelerator

from tercet.data.steps.workers import leaving_no_workers
from tercet.training import stages as staging
from tercet.training.evaluation import HeldOut
from tercet.training.loop import Progress
from tercet.training.recipe import OptimizerRecipe, StageRecipe
from tercet.training.stages import StagedSteps, StepCutter

from ..saved_weights import require_same, require_same_models, weights_in

STAGES = (
    StageRecipe(steps=3, tokens_per_step=60, sequence_length=8),
    StageRecipe(steps=16, tokens_per_step=150),
)
"""Three steps of short examples, then more than an epoch of whole ones, in smaller steps."""


@pytest.fixture
def shortened(toys, source):
    """Make the source whose rows are the others' beginnings."""

    def shortened(stage: StageRecipe):
        length = stage.sequence_length
        short = toys.Source()
        short.rows = [row[:length] for row in source.rows]
        short.lengths = source.lengths.clip(max=length)
        return short

    return shortened


@pytest.fixture
def build(toys, objective, source, shortened):
    def build(stages=STAGES, source_of=shortened, steps=30, **changes):
        recipe = toys.recipe(steps=steps, stages=stages, **changes)
        return StepCutter(objective, recipe, Accelerator(cpu=True)).stages(source, source_of)

    return build


def assert_same_data(found, expected):
    assert found.cursor[:2] == expected.cursor[:2]
    for name in ("input_ids", "labels"):
        assert torch.equal(found.parts[0].batch[name], expected.parts[0].batch[name])


def test_every_stage_has_its_size_and_length_and_begins_an_epoch(build):
    steps = list(islice(StagedSteps(build(), 0, (0, 0)), 22))
    assert [step.cursor[:2] for step in steps[:5]] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    epochs = [step.cursor[0] for step in steps]
    assert epochs == sorted(epochs)
    assert epochs[18] == 2, "the second stage goes on in a further epoch"
    assert steps[19].cursor == (3, 0, 19)
    for part, limit, longest in ((steps[:3], 60, 8), (steps[3:19], 150, 20), (steps[19:], 200, 20)):
        assert limit / 2 < min(step.tokens for step in part)
        assert max(step.tokens for step in part) <= limit
        assert max(step.parts[0].batch["max_length_k"] for step in part) == longest


@pytest.mark.parametrize("num_workers", [0, 1])
def test_starting_late_continues_the_same_sequence(build, num_workers):
    whole = list(islice(StagedSteps(build(), 0, (0, 0)), 22))
    progress = Progress()
    for taken in range(22):
        if num_workers == 0 or taken in (2, 3, 18):
            with leaving_no_workers():
                late = StagedSteps(build(), progress.step, progress.cursor, num_workers=num_workers)
                for found, expected in zip(islice(late, 3), whole[taken:], strict=False):
                    assert_same_data(found, expected)
        progress.advance(whole[taken])


def test_without_stages_a_run_has_one(build):
    (stage,) = build(stages=())
    for found, expected in zip(islice(StagedSteps([stage], 0, (0, 0)), 20), iter_places(stage), strict=True):
        assert_same_data(found, expected)


def iter_places(stage):
    """Twenty steps, in the order of epochs and of the steps in them."""
    places = ((epoch, number) for epoch in range(9) for number in range(len(stage.steps.plan(epoch)[1])))
    return (stage.steps[place] for place in islice(places, 20))


def test_evaluation_of_a_model_in_pieces_may_be_shared_unequally(toys, objective, source, monkeypatch):
    """It gathers the model; a step of training must not be."""
    monkeypatch.setattr(staging, "sharding_plugin", lambda accelerator: True)
    recipe, accelerator = toys.recipe(), Accelerator(cpu=True)
    cutter = StepCutter(objective, recipe, accelerator)
    assert not cutter.held_out(source).are_parts_equal
    (stage,) = cutter.stages(source)
    assert stage.steps.are_parts_equal


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 19}, r"stages last 19 steps, but steps = 19: shorten"),
        ({"source_of": None}, "sequence_length = 8, but the examples of this run cannot be"),
        (
            {"stages": (STAGES[0], StageRecipe(steps=1, tokens_per_step=9000))},
            "fewer than tokens_per_step = 9,000: lower tokens_per_step",
        ),
    ],
    ids=["no step is left", "a length that cannot be had", "a later stage is larger than the corpus"],
)
def test_stages_that_cannot_be_are_refused_before_the_first(changes, message, build):
    with pytest.raises(ValueError, match=message):
        build(**changes)


def stop(model):
    """Interrupt a run where it is evaluated."""
    signal.raise_signal(signal.SIGTERM)
    return {}


@pytest.fixture
def train(toys, shortened, tmp_path):
    def train(name, *, measure=lambda model: {}, resume=False, stages=STAGES, evaluate_every=None):
        torch.manual_seed(0)
        normuon = OptimizerRecipe("normuon", learning_rate=1e-2)
        recipe = toys.recipe(steps=20, stages=stages, optimizer=normuon, evaluate_every=evaluate_every)
        parts = {"model": toys.with_blocks(0.1), "source_of": shortened}
        held_out = HeldOut(toys.Source(9), measure=measure)
        return toys.train(tmp_path / name, recipe, **parts, held_out=held_out, resume=resume)

    return train


def test_a_run_that_stops_in_any_stage_goes_on_bit_for_bit_with_normuon(train):
    expected = train("straight").checkpoint
    for step in (2, 3, 9, 19):
        halted = train(f"halted-{step}", measure=stop, evaluate_every=step)
        assert (halted.progress.step, halted.interrupted_by) == (step, "SIGTERM")
        require_same_models(train(f"halted-{step}", resume=True).checkpoint, expected)


def test_resuming_with_other_stages_in_the_past_is_refused(train):
    train("run")
    with pytest.raises(
        ValueError, match=r"training.stages = .* steps of .* were made with \[.*: change later"
    ):
        train("run", resume=True, stages=())


def test_stages_that_are_still_to_come_may_change(train):
    """A run whose later stages change on the way is the one that had them from the beginning."""
    first, second, *_ = STAGES
    other = (first, replace(second, steps=second.steps - 2))
    stopped = train("changed", measure=stop, evaluate_every=first.steps + 1)
    assert stopped.progress.step == first.steps + 1
    resumed, straight, unchanged = (
        weights_in(train(name, stages=stages, resume=name == "changed").checkpoint)
        for name, stages in (("changed", other), ("straight", other), ("unchanged", STAGES))
    )
    require_same(resumed, straight)
    assert any(not torch.equal(unchanged[name], straight[name]) for name in straight)
