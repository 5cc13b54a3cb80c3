"""Several processes, launched as users launch them, make the model that one process makes."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file

from tercet.configs.recipe import recipe_data
from tercet.finetune.run import finetune

from ..small_taggers import save_characters, save_static

COPIES = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
PIECES = [
    "accelerate.commands.launch",
    "--use_fsdp",
    "--fsdp_version=2",
    "--num_processes=2",
    "--main_process_port=0",
]


TRAINING = {"epochs": 2, "batch_size": 8, "patience": 3, "learning_rate": 1e-3, "precision": "fp32"}


@pytest.mark.parametrize(
    ("kind", "launcher"),
    [
        pytest.param("tagging", PIECES, id="tagging-pieces", marks=pytest.mark.slow),
        pytest.param("ranking", COPIES, id="ranking-copies", marks=pytest.mark.slow),
        pytest.param("classification", COPIES, id="classification-copies", marks=pytest.mark.slow),
    ],
)
def test_two_processes_make_the_model_of_one(kind, launcher, recipe_of, tmp_path):
    task = {"group_size": 2} if kind == "ranking" else {}
    compare_processes(launcher, recipe_of(kind, count=24, training=TRAINING, task=task), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [PIECES, COPIES], ids=["pieces", "copies"])
def test_two_processes_make_the_tagger_of_one(launcher, recipe_of, tmp_path):
    """Each computes the word vectors of its own sentences."""
    first, second = save_characters(tmp_path / "characters"), save_static(tmp_path / "static")
    fields = {"hidden_size": 32, "dropout": 0.0, "word_dropout": 0.0}
    model = {"path": str(first), "tagger": {"beside": [str(second)]}, "overrides": fields}
    compare_processes(launcher, recipe_of("tagging", count=24, training=TRAINING, model=model), tmp_path)


def compare_processes(launcher, one, tmp_path):
    """Run a recipe in this process, and in two: their results are the same."""
    two = replace(one, output=str(tmp_path / "two"))
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(recipe_data(two)))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", *launcher, "-m", "tercet", "finetune", str(tmp_path / "two.yaml")]
    launched = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    expected, found = finetune(one), two.model_folder
    _, said = launched.communicate(timeout=300)
    assert launched.returncode == 0, said
    assert {path.name for path in found.iterdir()} == {path.name for path in expected.iterdir()}
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (found, expected))
    assert ours.keys() == theirs.keys()
    for name in theirs:
        difference = (ours[name].double() - theirs[name].double()).norm()
        assert difference <= 1e-5 * theirs[name].double().norm(), name
    assert scores(two.folder) == pytest.approx(scores(one.folder), abs=1e-5)


def scores(folder: Path) -> dict[str, float]:
    return json.loads((folder / "scores.json").read_text())["mean"]["validation"]
