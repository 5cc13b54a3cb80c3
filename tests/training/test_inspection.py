"""What a run that is given up leaves behind: enough to see its last step fail again."""

import errno
import json
import math
import shutil
from pathlib import Path

import pytest
import safetensors.torch
from safetensors.torch import load_file

from tercet.data.steps.packing import slice_sequences
from tercet.training.checkpoints.checkpoint import (
    CHECKPOINTS,
    checkpoints,
    find_damage,
    latest,
    load_checkpoint,
)
from tercet.training.tracking import LOG, read_log

TOO_MANY = 3
LAST_GOOD = 5


@pytest.fixture
def give_up(toys, tmp_path):
    """Train until three steps in a row have failed, those after the fifth; give the error."""

    class Failing(toys.Objective):
        calls = 0

        def collate(self, examples, seed):
            Failing.calls += 1
            batch = super().collate(examples, seed)
            return batch | {"is_long": batch["is_long"] + (9 if Failing.calls > LAST_GOOD else 0)}

        def losses(self, model, batch):
            broken = bool((batch["is_long"] > 1).any())
            sums = super().losses(model, batch | {"is_long": batch["is_long"] % 9})
            return sums | {"token": sums["token"] / 0} if broken else sums

    def give_up():
        recipe = toys.recipe(steps=20, checkpoint_every=2, log_every=3, max_skipped_steps=TOO_MANY)
        with pytest.raises(FloatingPointError) as raised:
            toys.train(tmp_path, recipe, objective=Failing())
        return str(raised.value), Failing()

    return give_up


def test_the_batch_and_the_weights_fail_again_and_the_numbers_of_the_step_are_told(give_up, toys, tmp_path):
    message, objective = give_up()
    folder = tmp_path / "non_finite"
    assert "not finite in 3 steps in a row, up to step 8: lower the learning rate" in message
    told = "--resume goes on from step-00000004, from before them, with the values that you change"
    assert message.endswith(f"its batch and the weights are in {folder}; {told}")
    run = toys.state()
    kept = latest(folder)
    assert kept == folder / "step-00000008"
    assert find_damage(kept) is None
    load_checkpoint(kept, run)
    assert all(parameter.isfinite().all() for parameter in run.model.parameters())
    batch = load_file(folder / "batch-0.safetensors")
    edges = batch.pop("edges").tolist()
    first = objective.losses(run.model, slice_sequences(batch, edges[0], edges[1]))
    assert not first["token"].isfinite()
    assert first["length"].isfinite()
    told = json.loads((folder / "step.json").read_text())
    assert {name: told[name] for name in ("step", "epoch", "number")} == {"step": 8, "epoch": 0, "number": 7}
    assert told["token/loss"] == "inf"
    assert told["loss"] == "inf"
    assert told["grad_norm"] in ("nan", "inf")
    assert math.isfinite(told["length/loss"])
    assert 0 < told["learning_rate"] < 1


def test_the_earlier_checkpoints_stay_those_from_which_a_run_continues(give_up, tmp_path):
    give_up()
    kept = checkpoints(tmp_path / CHECKPOINTS)
    assert [path.name for path in kept] == ["step-00000002", "step-00000004"]
    assert all(find_damage(path) is None for path in kept)
    assert [record["loss"] is None for record in read_log(tmp_path / LOG)] == [False, False]


def test_a_run_that_is_given_up_again_replaces_what_it_left(give_up, tmp_path):
    give_up()
    (tmp_path / "non_finite" / "step-00000001").mkdir()
    shutil.rmtree(tmp_path / CHECKPOINTS)
    give_up()
    assert len(list((tmp_path / "non_finite").iterdir())) == 3


def test_without_room_the_reason_is_told_all_the_same(give_up, monkeypatch):
    save_file = safetensors.torch.save_file

    def saved(tensors, path, **options):
        if Path(path).name.startswith("batch"):
            raise OSError(errno.ENOSPC, "full")
        save_file(tensors, path, **options)

    monkeypatch.setattr(safetensors.torch, "save_file", saved)
    message, _ = give_up()
    assert "not finite in 3 steps in a row" in message
    assert "its data could not be kept: " in message
    assert "cannot be written" in message
