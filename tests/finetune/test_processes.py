"""Several processes make the model that one process makes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tercet.configs.recipe import recipe_data

from ..launches import LAUNCHERS
from ..reported import finetune
from ..saved_weights import require_near_models
from ..small_taggers import save_characters, save_static

TRAINING = {"epochs": 2, "batch_size": 8, "patience": 3, "learning_rate": 1e-3, "precision": "fp32"}


@pytest.fixture
def compare(fork, recipe_of, tmp_path):
    """Run a recipe in this process, and in two: their results are the same.

    The last step of an epoch has one row, which is less than a row for each process.
    """

    def compare(way, kind, **changes):
        one = recipe_of(kind, count=25, training=TRAINING, **changes)
        two = replace(one, output=str(tmp_path / "two"))
        (tmp_path / "two.yaml").write_text(yaml.safe_dump(recipe_data(two)))
        finish = fork(way, "finetune", str(tmp_path / "two.yaml"))
        expected = finetune(one)
        finish()
        require_near_models(two.folder / "model", expected, 1e-5)
        assert scores(two.folder) == pytest.approx(scores(one.folder), abs=1e-5)

    return compare


def scores(folder: Path) -> dict[str, float]:
    return json.loads((folder / "scores.json").read_text())["mean"]["validation"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "way"), [("tagging", "pieces"), ("ranking", "copies"), ("classification", "copies")]
)
def test_two_processes_make_the_model_of_one(kind, way, compare):
    compare(way, kind, task={"group_size": 2} if kind == "ranking" else {})


@pytest.mark.slow
@pytest.mark.parametrize("way", LAUNCHERS)
def test_two_processes_make_the_tagger_of_one(way, compare, tmp_path):
    """Each computes the word vectors of its own sentences."""
    first, second = save_characters(tmp_path / "characters"), save_static(tmp_path / "static")
    fields = {"hidden_size": 32, "dropout": 0.0, "word_dropout": 0.0}
    model = {"path": str(first), "tagger": {"beside": [str(second)]}, "overrides": fields}
    compare(way, "tagging", model=model)
