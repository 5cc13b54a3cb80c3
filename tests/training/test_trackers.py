"""Experiment trackers: how a recipe names them, and that the log arrives there, from a resumed run too."""

import json
import shutil
import sqlite3
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest

from tercet.configs.recipe import parse_recipe
from tercet.training.devices.precision import build_accelerator
from tercet.training.recipe import Tracker, TrainingRecipe
from tercet.training.tracking import LOG, read_log


@pytest.mark.parametrize(
    ("written", "expected"),
    [("wandb", ("wandb",)), (["wandb"], ("wandb",)), (["trackio", "aim"], ("trackio", "aim")), ([], ())],
)
def test_a_single_tracker_may_stand_alone(written, expected):
    assert parse_recipe(TrainingRecipe, {"steps": 1, "trackers": written}).trackers == expected


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("wanb", "; did you mean wandb?"),
        (["TensorBord"], "; did you mean tensorboard?"),
        (["wandb", "abacus"], "trackers.1 = \"abacus\": must be 'aim', 'clearml', "),
        (3, "or must be a list in brackets"),
    ],
)
def test_a_name_that_is_no_tracker_is_answered_with_the_nearest(written, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the message is compared below)
        parse_recipe(TrainingRecipe, {"steps": 1, "trackers": written})
    assert message in str(error.value)
    assert str(error.value).count("did you mean") == message.count("did you mean")


def test_the_names_are_those_of_accelerate():
    from accelerate.utils import LoggerType

    assert sorted(get_args(Tracker)) == sorted({tracker.value for tracker in LoggerType} - {"all"})


def losses_of_trackio(folder: Path) -> dict[int, float]:
    """Read the losses that trackio has, by steps, out of its database."""
    (file,) = folder.glob("*.db")
    with sqlite3.connect(file) as database:
        records = database.execute("select step, metrics from metrics order by id").fetchall()
    told = ((step, json.loads(metrics)) for step, metrics in records)
    return {step: metrics["loss"] for step, metrics in told if "loss" in metrics}


def test_trackio_receives_the_log_of_a_run_that_is_resumed(toys, tmp_path, monkeypatch):
    """TensorBoard's is in `test_tracking.py`."""
    if find_spec("trackio") is None:
        pytest.skip("trackio is not installed: pip install trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    folder = tmp_path / "tracked"
    recipe = toys.recipe(steps=4, checkpoint_every=2, log_every=1, trackers=("trackio",))
    for resume in (False, True):
        parts = toys.Model(), toys.Objective(), toys.Source(), recipe, folder
        outcome = toys.fit(*parts, build_accelerator(recipe, folder), resume=resume)
        shutil.rmtree(outcome.checkpoint)
    logged = {record["step"]: record["loss"] for record in read_log(folder / LOG) if "loss" in record}
    assert sorted(logged) == [1, 2, 3, 4]
    assert losses_of_trackio(tmp_path / "trackio") == pytest.approx(logged)
