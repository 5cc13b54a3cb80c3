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

COPIES = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
PIECES = [
    "accelerate.commands.launch",
    "--use_fsdp",
    "--fsdp_version=2",
    "--num_processes=2",
    "--main_process_port=0",
]


@pytest.mark.parametrize(
    ("kind", "launcher"),
    [
        pytest.param("tagging", PIECES, id="tagging-pieces", marks=pytest.mark.slow),
        pytest.param("ranking", COPIES, id="ranking-copies", marks=pytest.mark.slow),
        pytest.param("classification", COPIES, id="classification-copies", marks=pytest.mark.slow),
    ],
)
def test_two_processes_make_the_model_of_one(kind, launcher, recipe_of, tmp_path):
    training = {"epochs": 2, "batch_size": 8, "patience": 3, "learning_rate": 1e-3, "precision": "fp32"}
    task = {"group_size": 2} if kind == "ranking" else {}
    one = recipe_of(kind, count=24, training=training, task=task)
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
        assert (ours[name] - theirs[name]).norm() <= 1e-5 * theirs[name].norm(), name
    assert scores(two.folder) == pytest.approx(scores(one.folder), abs=1e-5)


def scores(folder: Path) -> dict[str, float]:
    return json.loads((folder / "scores.json").read_text())["mean"]["validation"]
