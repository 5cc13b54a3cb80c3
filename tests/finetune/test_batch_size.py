"""An epoch of fine-tuning learns from each row once, in steps of `batch_size` rows, however long they are."""

import json
import signal

import numpy as np
import pytest

from tercet.data.steps import batches
from tercet.data.steps.packing import ragged
from tercet.data.steps.step_planning import plan_steps
from tercet.finetune import run
from tercet.finetune.encoding import LabelledExamples
from tercet.finetune.learning import training_recipe_of
from tercet.finetune.recipe import FineTuningTraining
from tercet.training.checkpoints.checkpoint import is_due
from tercet.training.tracking import read_log

from ..reported import finetune
from .conftest import ROWS

ROW_COUNT = 13
SIZE = 4
EPOCHS = 2


def examples_of(lengths: list[int]) -> LabelledExamples:
    return LabelledExamples({"input_ids": ragged([np.ones(length, dtype=int) for length in lengths])})


@pytest.fixture
def learned(monkeypatch):
    """Note which examples the steps of a run read, in their order; a signal may end it before one."""
    noted: list[np.ndarray] = []
    pick, stops = batches.pick, []

    def noting(examples, indices):
        if stops and len(noted) == stops[0]:
            stops.clear()
            signal.raise_signal(signal.SIGTERM)
        noted.append(np.asarray(indices))
        return pick(examples, indices)

    monkeypatch.setattr(batches, "pick", noting)
    return noted, stops


def require_each_once(noted: list[np.ndarray], num_examples: int, epochs: int) -> None:
    found = np.concatenate(noted)
    assert len(found) == num_examples * epochs
    for epoch in np.split(found, epochs):
        assert sorted(epoch) == list(range(num_examples))
    last = num_examples % SIZE or SIZE
    of_epoch = [*[SIZE] * ((num_examples - 1) // SIZE), last]
    assert [len(step) for step in noted] == of_epoch * epochs


@pytest.mark.parametrize("size", [1, 4, 7, 32, 300, 500])
def test_rows_of_any_lengths_make_as_many_steps_as_are_planned(size):
    lengths = np.clip(np.random.default_rng(0).lognormal(3, 1, 300), 1, 120).astype(int)
    training = FineTuningTraining(epochs=3, batch_size=size, learning_rate=1e-4)
    recipe = training_recipe_of(training, examples_of(lengths.tolist()), seed=0)
    rng = np.random.default_rng(0)
    steps = plan_steps(lengths, recipe.tokens_per_step, rng, examples_per_step=size)
    assert len(steps) * 3 == recipe.steps
    assert sorted(np.concatenate(steps)) == list(range(300))
    assert all(lengths[step].sum() <= recipe.tokens_per_step for step in steps)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind in ("tagging", "ranking") else pytest.mark.slow) for kind in ROWS],
)
def test_each_row_is_learned_once_in_an_epoch(kind, recipe_of, learned):
    recipe = recipe_of(kind, count=ROW_COUNT, training={"batch_size": SIZE, "epochs": EPOCHS})
    finetune(recipe)
    noted, _ = learned
    require_each_once(noted, ROW_COUNT, EPOCHS)
    (result,) = json.loads((recipe.folder / "scores.json").read_text())["seeds"].values()
    assert result["learned"]["examples_of_epochs"] == [ROW_COUNT] * EPOCHS
    assert (
        f"| seed 0 | {result['steps']} | {ROW_COUNT * EPOCHS} in 2 epochs"
        in (recipe.folder / "report.md").read_text()
    )


def test_each_row_is_learned_once_after_a_resume(recipe_of, learned):
    recipe = recipe_of("classification", count=ROW_COUNT, training={"batch_size": SIZE, "epochs": EPOCHS})
    noted, stops = learned
    stops.append(6)
    with pytest.raises(KeyboardInterrupt):
        run.finetune(recipe)
    assert len(noted) == 6
    run.finetune(recipe, resume=True)
    require_each_once(noted, ROW_COUNT, EPOCHS)


def test_a_run_says_how_many_rows_it_learned_from_where_fewer_than_asked(recipe_of, capsys):
    training = {"batch_size": SIZE, "epochs": 6, "patience": 1, "learning_rate": 1e-9}
    recipe = recipe_of("classification", count=ROW_COUNT, training=training)
    run.finetune(recipe)
    assert (
        f"seed-0 has learned from {2 * ROW_COUNT} examples, and its recipe asks for 78"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(("steps", "asked"), [(5, 4), (5, 1), (5, 3), (63, 4), (1, 1)])
def test_an_epoch_has_as_many_evaluations_as_are_asked_for(steps, asked):
    training = FineTuningTraining(epochs=2, batch_size=1, learning_rate=1e-4, evaluations_per_epoch=asked)
    recipe = training_recipe_of(training, examples_of([3] * steps), seed=0)
    due = [step for step in range(1, recipe.steps + 1) if is_due(recipe.evaluate_every, step)]
    assert len(due) == 2 * asked
    assert {steps, 2 * steps} <= {*due}


def test_more_evaluations_than_steps_are_as_many_as_steps(recipe_of):
    training = {"batch_size": 8, "epochs": 1, "evaluations_per_epoch": 5}
    recipe = recipe_of("classification", count=16, training=training)
    run.finetune(recipe)
    log = read_log(recipe.folder / "seed-0" / "log.jsonl")
    assert [record["step"] for record in log if "evaluation/loss" in record] == [1, 2]
