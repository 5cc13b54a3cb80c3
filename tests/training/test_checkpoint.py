"""Checkpoints: complete or absent, and enough to continue from."""

import json
import math
import random

import numpy as np
import pytest
import torch

from tercet.training.checkpoints.checkpoint import (
    best,
    checkpoints,
    latest,
    load_checkpoint,
    prune,
    random_state,
    read_state,
    restore_random_state,
    save_checkpoint,
)


@pytest.fixture
def make(toys):
    return toys.state


def draws() -> list[float]:
    return [random.random(), float(np.random.rand()), float(torch.rand(()))]


def test_a_loaded_run_moves_as_the_saved_one_does(toys, make, tmp_path):
    run = make(3)
    path = save_checkpoint(tmp_path, run, recipe={"a": 1})
    random_before = draws()
    toys.move(run)
    again = make()
    load_checkpoint(path, again)
    assert draws() == random_before
    toys.move(again)
    assert again.progress == run.progress
    for expected, found in zip(run.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(found, expected)
    assert again.model.tokens.weight is again.model.embedding.weight, "still tied"


@pytest.mark.parametrize("now", ["cuda", "cuda:0", "cuda:3"])
def test_a_gpu_draws_on_whichever_number_it_has(now, monkeypatch):
    """And however many are visible."""
    state_of = {torch.device("cuda", 1): torch.tensor([7], dtype=torch.uint8)}
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: state_of[device])
    kept = random_state(torch.device("cuda", 1))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: state_of.update({device: state}))
    restore_random_state(kept, torch.device(now))
    assert state_of[torch.device(now)].tolist() == [7]
    restore_random_state(kept, torch.device("cpu"))
    restore_random_state(random_state(torch.device("cpu")), torch.device("cuda", 2))
    assert len(state_of) == 2, "a CPU has nothing of it, and gives a GPU nothing"


def test_a_checkpoint_tells_what_made_it(make, tmp_path):
    path = save_checkpoint(tmp_path, make(2), recipe={"training": {"steps": 9}}, scores={"loss": 1.5})
    assert path == tmp_path / "step-00000002"
    state = read_state(path)
    assert state["recipe"] == {"training": {"steps": 9}}
    assert (state["scores"]["loss"], state["progress"]["step"]) == (1.5, 2)
    assert state["circumstances"]["torch"] == torch.__version__


def test_unfinished_checkpoints_are_not_found(make, tmp_path):
    assert latest(tmp_path) is None
    path = save_checkpoint(tmp_path, make(1), recipe={})
    (tmp_path / ".step-00000002.partial").mkdir()
    (tmp_path / "step-00000003").mkdir()
    assert latest(tmp_path) == path


def test_a_step_that_is_saved_again_replaces_the_earlier_one(make, tmp_path):
    for score in (1.0, 2.0):
        path = save_checkpoint(tmp_path, make(1), recipe={}, scores={"loss": score})
    assert checkpoints(tmp_path) == [path]
    assert read_state(path)["scores"]["loss"] == 2.0


def test_the_newest_and_the_best_stay(toys, make, tmp_path):
    run = make()
    for score in (math.nan, 1.0, 2.0, math.inf, 2.5):
        toys.move(run)
        save_checkpoint(tmp_path, run, recipe={}, scores={"loss": score})
    (tmp_path / ".step-00000009.partial").mkdir()
    prune(tmp_path, keep=2)
    assert [path.name[-1] for path in checkpoints(tmp_path)] == ["2", "4", "5"]
    assert best(tmp_path) == tmp_path / "step-00000002"
    assert len(list(tmp_path.iterdir())) == 3


def test_the_best_is_lowest_in_its_criterion_and_in_the_loss_if_there_is_none(toys, make, tmp_path):
    run = make()
    for loss, criterion in ((1.0, None), (2.0, -0.9), (0.5, -0.5), (3.0, math.nan)):
        toys.move(run)
        save_checkpoint(tmp_path, run, recipe={}, scores={"loss": loss}, criterion=criterion)
    assert best(tmp_path) == tmp_path / "step-00000002"
    toys.move(run)
    save_checkpoint(tmp_path, run, recipe={}, scores={"loss": -2.0})
    assert best(tmp_path) == tmp_path / "step-00000005"


def test_checkpoints_of_before_there_were_criteria_still_serve(toys, make, tmp_path):
    run = make()
    for loss in (2.0, 1.0, 3.0):
        toys.move(run)
        path = save_checkpoint(tmp_path, run, recipe={}, scores={"loss": loss})
        state = read_state(path)
        for entries, name in ((state, "criterion"), (state["progress"], "best")):
            del entries[name]
        del state["progress"]["evaluations_since"]
        (path / "state.json").write_text(json.dumps(state))
    assert best(tmp_path) == tmp_path / "step-00000002"
    again = make()
    load_checkpoint(path, again)
    assert again.progress == run.progress


def test_weights_of_another_shape_are_refused(make, toys, tmp_path):
    path = save_checkpoint(tmp_path, make(1), recipe={})
    model = toys.Model()
    model.hidden = torch.nn.Linear(16, 5)
    with pytest.raises(ValueError, match="does not fit the recipe's model"):
        load_checkpoint(path, make(model=model))


def test_a_checkpoint_holds_no_code(make, tmp_path):
    path = save_checkpoint(tmp_path, make(1), recipe={})
    for file in path.iterdir():
        if file.suffix == ".pt":
            torch.load(file, weights_only=True)
        elif file.suffix == ".json":
            json.loads(file.read_text())
        else:
            assert file.suffix == ".safetensors"
