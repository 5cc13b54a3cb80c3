"""Several processes, launched as users launch them, make the model that one process makes."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file
from transformers import AutoModelForPreTraining

from tercet.pretraining.run import pretrain
from tercet.training.orthogonalization import SHARED_FROM
from tercet.training.tracking import LOG, read_log

from .conftest import TINY

COPIES = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
PIECES = [
    "accelerate.commands.launch",
    "--use_fsdp",
    "--fsdp_version=2",
    "--num_processes=2",
    "--main_process_port=0",
]
SLOW = pytest.mark.slow
CASES = [
    pytest.param("translation", PIECES, id="translation-pieces"),
    pytest.param("translation", COPIES, id="translation-copies", marks=SLOW),
    pytest.param("masked_language_modeling_with_next_sentence", PIECES, id="encoder-pieces", marks=SLOW),
    pytest.param("masked_language_modeling_with_next_sentence", COPIES, id="encoder-copies", marks=SLOW),
    pytest.param("replaced_token_detection", PIECES, id="replaced-tokens-pieces", marks=SLOW),
    pytest.param("replaced_token_detection", COPIES, id="replaced-tokens-copies", marks=SLOW),
    pytest.param("sentence_denoising", PIECES, id="sentences-pieces", marks=SLOW),
    pytest.param("sentence_denoising", COPIES, id="sentences-copies", marks=SLOW),
    pytest.param("causal_language_modeling", PIECES, id="decoder-pieces", marks=SLOW),
    pytest.param("causal_language_modeling", COPIES, id="decoder-copies", marks=SLOW),
    pytest.param("hybrid_language_modeling", PIECES, id="hybrid-pieces", marks=SLOW),
    pytest.param("hybrid_language_modeling", COPIES, id="hybrid-copies", marks=SLOW),
    pytest.param("character_language_modeling", PIECES, id="characters-pieces", marks=SLOW),
    pytest.param("character_language_modeling", COPIES, id="characters-copies", marks=SLOW),
    pytest.param("bidirectional_language_modeling", PIECES, id="elmo-pieces", marks=SLOW),
    pytest.param("bidirectional_language_modeling", COPIES, id="elmo-copies", marks=SLOW),
    pytest.param("mixture", COPIES, id="mixture-copies", marks=SLOW),
]
BY_THE_CLOCK = {"seconds", "tokens_per_second", "memory_mib"}


@pytest.mark.parametrize(("kind", "launcher"), CASES)
def test_two_processes_make_the_model_of_one(kind, launcher, recipe_on):
    """Of ragged batches and micro-batches of two terms or smoothed targets, evaluated in between."""
    settings = {"precision": "fp32", "tokens_per_micro_batch": 140, "evaluate_every": 2}
    launch_and_compare(launcher, recipe_on(kind, "one", **settings)[0], *recipe_on(kind, "two", **settings))


@pytest.mark.slow
def test_two_processes_make_the_compiled_model_of_one(recipe_on):
    settings = {"precision": "fp32", "tokens_per_micro_batch": 140, "evaluate_every": 2, "compile": True}
    one, _ = recipe_on("causal_language_modeling", "one", **settings)
    launch_and_compare(COPIES, one, *recipe_on("causal_language_modeling", "two", **settings))


@pytest.mark.slow
@pytest.mark.parametrize("passes", [2, 64])
@pytest.mark.parametrize("launcher", [PIECES, COPIES], ids=["pieces", "copies"])
def test_two_processes_read_the_predictions_of_one(launcher, passes, recipe_on):
    """Predictions are made by passes beside that which is learned from, of each process's micro-batches.

    64 are more than a target has tokens, so that targets decide how many there are.
    """
    settings = {"precision": "fp32", "tokens_per_micro_batch": 140, "evaluate_every": 2}
    sampling = {"schedule": "inverse_sigmoid", "final_probability": 0.7, "steepness": 2.0}
    sampling["passes"] = passes
    objective = {"scheduled_sampling": sampling, "input_noise": 0.1}
    one, _ = recipe_on("translation", "one", objective=objective, **settings)
    launch_and_compare(launcher, one, *recipe_on("translation", "two", objective=objective, **settings))


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [PIECES, COPIES], ids=["pieces", "copies"])
def test_two_processes_make_the_recurrent_translator_of_one(launcher, recipe_on):
    settings = {"precision": "fp32", "tokens_per_micro_batch": 140, "evaluate_every": 2}
    settings["model"] = {"preset": "recurrent-mini", "overrides": {"hidden_size": 32}}
    one, _ = recipe_on("translation", "one", **settings)
    launch_and_compare(launcher, one, *recipe_on("translation", "two", **settings))


ORTHOGONALIZED = [
    pytest.param("muon", PIECES, 32, id="muon-pieces", marks=SLOW),
    pytest.param("normuon", PIECES, 32, id="normuon-pieces"),
    pytest.param("normuon", COPIES, SHARED_FROM, id="normuon-copies", marks=SLOW),
]


@pytest.mark.parametrize(("kind", "launcher", "width"), ORTHOGONALIZED)
def test_two_processes_orthogonalize_as_one(kind, launcher, width, recipe_on):
    """Within what products of rounded numbers differ; one process goes on where two have stopped."""
    optimizer = {"kind": kind, "learning_rate": 1e-3, "matrix_learning_rate": 1e-2}
    settings = {"precision": "fp32", "tokens_per_micro_batch": 140, "optimizer": optimizer}
    settings["schedule"] = {"kind": "constant"}
    overrides = TINY | {"hidden_size": width, "intermediate_size": 2 * width}
    settings["model"] = {"preset": "encoder-tiny", "overrides": overrides}
    one, _ = recipe_on("masked_language_modeling", "one", steps=6, **settings)
    two, file = recipe_on("masked_language_modeling", "two", steps=4, **settings)
    launched = launch(launcher, file)
    expected = load_file(pretrain(one) / "model.safetensors")
    _, said = launched.communicate(timeout=300)
    assert launched.returncode == 0, said
    found = load_file(
        pretrain(replace(two, training=replace(two.training, steps=6)), resume=True) / "model.safetensors"
    )
    for name, weight in expected.items():
        assert (found[name] - weight).norm() <= 2e-3 * weight.norm(), name


def launch(launcher: list[str], file: Path) -> subprocess.Popen:
    """Pretrain by a recipe's file in two processes."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", *launcher, "-m", "tercet", "pretrain", str(file)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def launch_and_compare(launcher, one, two, file):
    """Run one recipe in this process and another one, in `file`, in two: their results are the same."""
    launched = launch(launcher, file)
    expected, found = pretrain(one), two.folder / "model"
    _, said = launched.communicate(timeout=300)
    assert launched.returncode == 0, said

    assert {path.name for path in found.iterdir()} == {path.name for path in expected.iterdir()}
    assert (found / "config.json").read_text() == (expected / "config.json").read_text()
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (found, expected))
    assert ours.keys() == theirs.keys()
    for name in theirs:
        difference = (ours[name].double() - theirs[name].double()).norm()
        assert difference <= 1e-6 * theirs[name].double().norm(), name
    records = [read_log(recipe.folder / LOG) for recipe in (two, one)]
    for left, right in zip(*records, strict=True):
        for name in right.keys() - BY_THE_CLOCK - {"data"}:
            assert left[name] == pytest.approx(right[name], rel=1e-6), name
        assert left.get("data") == right.get("data")
    assert AutoModelForPreTraining.from_pretrained(found)
