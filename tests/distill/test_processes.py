"""Several processes, launched as users launch them, make the student that one process makes."""

import os
import subprocess
import sys

import numpy as np
import pytest
import yaml
from safetensors.torch import load_file

from tercet.configs.recipe import load_recipe, recipe_data
from tercet.distill.recipe import DistillationRecipe
from tercet.distill.run import distill

COPIES = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
PIECES = [
    "accelerate.commands.launch",
    "--use_fsdp",
    "--fsdp_version=2",
    "--num_processes=2",
    "--main_process_port=0",
]
LOSSES = [{"kind": kind} for kind in ("soft_targets", "hidden_states", "relations")]


def recipe_files(data, tmp_path):
    """Write a recipe twice, for one process and for two."""
    files = {name: tmp_path / f"{name}.yaml" for name in ("one", "two")}
    for name, file in files.items():
        file.write_text(yaml.safe_dump(data | {"output": str(tmp_path / name)}))
    return files


def require_equal_students(files, launcher):
    """Carry out both recipes at once, and compare what they have made."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", *launcher, "-m", "tercet", "distill", str(files["two"])]
    launched = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    expected = distill(load_recipe(DistillationRecipe, files["one"]))
    _, said = launched.communicate(timeout=300)
    assert launched.returncode == 0, said
    found = load_recipe(DistillationRecipe, files["two"]).model_folder
    assert {path.name for path in found.iterdir()} == {path.name for path in expected.iterdir()}
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (found, expected))
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert (ours[name] - theirs[name]).norm() <= 1e-5 * theirs[name].norm(), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("member", "launcher"),
    [
        pytest.param("encoder", COPIES, id="encoder-copies"),
        pytest.param("seq2seq", PIECES, id="seq2seq-pieces"),
        pytest.param("decoder", PIECES, id="decoder-pieces"),
        pytest.param("decoder", COPIES, id="decoder-copies"),
    ],
)
def test_two_processes_make_the_student_of_one(member, launcher, recipe_of, tmp_path):
    """A narrower one, with projections, evaluated in between."""
    settings = {"steps": 4, "tokens_per_micro_batch": 140, "evaluate_every": 2}
    settings["optimizer"] = {"epsilon": 1e-3}
    student = {"overrides": {"hidden_size": 16, "head_dim": 4}, "initialization": "random"}
    one = recipe_of(member, "one", training=settings, student=student)
    data = recipe_data(one)
    data["general"]["losses"] = LOSSES
    require_equal_students(recipe_files(data, tmp_path), launcher)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["relations", "attention_maps"])
def test_two_processes_do_not_wait_for_what_nothing_teaches(kind, recipe_of, tmp_path):
    settings = {"steps": 3, "tokens_per_micro_batch": 140, "optimizer": {"epsilon": 1e-3}}
    data = recipe_data(recipe_of("encoder", training=settings))
    data["general"] |= {"losses": [{"kind": kind}], "objective_weight": 0.0}
    require_equal_students(recipe_files(data, tmp_path), COPIES)


@pytest.mark.slow
@pytest.mark.parametrize("member", ["decoder", "seq2seq"])
def test_two_processes_write_what_one_writes(member, recipe_of, tmp_path):
    settings = {"steps": 3, "tokens_per_micro_batch": 140, "optimizer": {"epsilon": 1e-3}}
    data = recipe_data(recipe_of(member, training=settings))
    data["general"] |= {
        "losses": [{"kind": "generalized_divergence"}],
        "objective_weight": 0.0,
        "on_policy": {"probability": 1.0},
    }
    require_equal_students(recipe_files(data, tmp_path), COPIES)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [pytest.param(COPIES, id="copies"), pytest.param(PIECES, id="pieces")])
def test_two_processes_read_and_write_the_cache_of_one(launcher, recipe_of, tmp_path):
    """Each number of processes writes a cache of its own."""
    settings = {"steps": 4, "tokens_per_micro_batch": 140, "optimizer": {"epsilon": 1e-3}}
    data = recipe_data(recipe_of("encoder", training=settings, objective={"masking": "static"}))
    files = recipe_files(data, tmp_path)
    for name, file in files.items():
        data["general"]["cache"] = {"top_k": 8, "copies": 2, "folder": str(tmp_path / f"cache-{name}")}
        file.write_text(yaml.safe_dump(data | {"output": str(tmp_path / name)}))
    require_equal_students(files, launcher)
    one, two = (tmp_path / f"cache-{name}" for name in files)
    assert {path.name for path in one.iterdir()} == {path.name for path in two.iterdir()}
    for name in ("target_offsets", "token_offsets"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    for name in ("values", "states"):
        ours, theirs = (np.fromfile(folder / name, dtype=np.float16) for folder in (one, two))
        np.testing.assert_allclose(ours, theirs, rtol=1e-2, atol=1e-2)
