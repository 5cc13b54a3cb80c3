"""Several processes make the student that one process makes."""

import numpy as np
import pytest
import yaml

from tercet.configs.recipe import load_recipe, recipe_data
from tercet.distill.recipe import DistillationRecipe
from tercet.distill.run import distill

from ..launches import LAUNCHERS
from ..saved_weights import require_near_models

LOSSES = [{"kind": kind} for kind in ("soft_targets", "hidden_states", "relations")]


def recipe_files(data, tmp_path):
    """Write a recipe twice, for one process and for two."""
    files = {name: tmp_path / f"{name}.yaml" for name in ("one", "two")}
    for name, file in files.items():
        file.write_text(yaml.safe_dump(data | {"output": str(tmp_path / name)}))
    return files


@pytest.fixture
def require_equal_students(fork):
    """Carry out both recipes at once, and compare what they have made."""

    def require_equal_students(files, way):
        finish = fork(way, "distill", str(files["two"]))
        expected = distill(load_recipe(DistillationRecipe, files["one"]))
        finish()
        require_near_models(load_recipe(DistillationRecipe, files["two"]).folder / "model", expected, 1e-5)

    return require_equal_students


@pytest.mark.slow
@pytest.mark.parametrize(
    ("member", "way"),
    [("encoder", "copies"), ("seq2seq", "pieces"), ("decoder", "pieces"), ("decoder", "copies")],
)
def test_two_processes_make_the_student_of_one(member, way, recipe_of, tmp_path, require_equal_students):
    """A narrower one, with projections, evaluated in between."""
    settings = {"steps": 4, "tokens_per_micro_batch": 140, "evaluate_every": 2}
    settings["optimizer"] = {"epsilon": 1e-3}
    student = {"overrides": {"hidden_size": 16, "head_dim": 4}, "initialization": "random"}
    one = recipe_of(member, "one", training=settings, student=student)
    data = recipe_data(one)
    data["general"]["losses"] = LOSSES
    require_equal_students(recipe_files(data, tmp_path), way)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["relations", "attention_maps"])
def test_two_processes_do_not_wait_for_what_nothing_teaches(
    kind, recipe_of, tmp_path, require_equal_students
):
    settings = {"steps": 3, "tokens_per_micro_batch": 140, "optimizer": {"epsilon": 1e-3}}
    data = recipe_data(recipe_of("encoder", training=settings))
    data["general"] |= {"losses": [{"kind": kind}], "objective_weight": 0.0}
    require_equal_students(recipe_files(data, tmp_path), "copies")


@pytest.mark.slow
@pytest.mark.parametrize("member", ["decoder", "seq2seq"])
def test_two_processes_write_what_one_writes(member, recipe_of, tmp_path, require_equal_students):
    settings = {"steps": 3, "tokens_per_micro_batch": 140, "optimizer": {"epsilon": 1e-3}}
    data = recipe_data(recipe_of(member, training=settings))
    data["general"] |= {
        "losses": [{"kind": "generalized_divergence"}],
        "objective_weight": 0.0,
        "on_policy": {"probability": 1.0},
    }
    require_equal_students(recipe_files(data, tmp_path), "copies")


@pytest.mark.slow
@pytest.mark.parametrize("way", LAUNCHERS)
def test_two_processes_read_and_write_the_cache_of_one(way, recipe_of, tmp_path, require_equal_students):
    """Each number of processes writes a cache of its own."""
    settings = {"steps": 4, "tokens_per_micro_batch": 140, "optimizer": {"epsilon": 1e-3}}
    data = recipe_data(recipe_of("encoder", training=settings, objective={"masking": "static"}))
    files = recipe_files(data, tmp_path)
    for name, file in files.items():
        data["general"]["cache"] = {"top_k": 8, "copies": 2, "folder": str(tmp_path / f"cache-{name}")}
        file.write_text(yaml.safe_dump(data | {"output": str(tmp_path / name)}))
    require_equal_students(files, way)
    one, two = (tmp_path / f"cache-{name}" for name in files)
    assert {path.name for path in one.iterdir()} == {path.name for path in two.iterdir()}
    for name in ("target_offsets", "token_offsets"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    for name in ("values", "states"):
        ours, theirs = (np.fromfile(folder / name, dtype=np.float16) for folder in (one, two))
        np.testing.assert_allclose(ours, theirs, rtol=1e-2, atol=1e-2)
