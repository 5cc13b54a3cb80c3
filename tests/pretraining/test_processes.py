"""Several processes make the model that one process makes, also where launchers of users start them."""

import json
from itertools import product
from types import MappingProxyType

import pytest
from transformers import AutoModelForPreTraining

from tercet.pretraining.run import pretrain
from tercet.training.optimizers.orthogonalization import SHARED_FROM
from tercet.training.tracking import LOG, read_log

from ..launches import LAUNCHERS, launch
from ..logs import BY_THE_CLOCK
from ..saved_weights import require_near_models, weights_in
from .conftest import TINY, changed

SLOW = pytest.mark.slow
KINDS = (
    *("masked_language_modeling_with_next_sentence", "replaced_token_detection", "sentence_denoising"),
    *("causal_language_modeling", "hybrid_language_modeling", "character_language_modeling"),
    "bidirectional_language_modeling",
)
RAGGED = {"precision": "fp32", "tokens_per_micro_batch": 140, "evaluate_every": 2}
"""Ragged batches and micro-batches of two terms or smoothed targets, evaluated in between."""


@pytest.fixture
def compare(recipe_on, fork):
    """Run one recipe in this process and another one in two: their results are the same.

    What `in_two` says is true of two processes alone.
    """

    def compare(kind, way, start=fork, in_two=MappingProxyType({}), **changes):
        one, _ = recipe_on(kind, "one", **RAGGED | changes)
        two, file = recipe_on(kind, "two", **RAGGED | changes | in_two)
        finish = start(way, "pretrain", str(file))
        expected, found = pretrain(one), two.folder / "model"
        finish()
        require_near_models(found, expected, 1e-6)
        assert (found / "config.json").read_text() == (expected / "config.json").read_text()
        records = [read_log(recipe.folder / LOG) for recipe in (two, one)]
        for left, right in zip(*records, strict=True):
            for name in right.keys() - BY_THE_CLOCK - {"data"}:
                assert left[name] == pytest.approx(right[name], rel=1e-6), name
            assert left.get("data") == right.get("data")
        assert AutoModelForPreTraining.from_pretrained(found)
        return two

    return compare


@SLOW
@pytest.mark.parametrize("way", ["pieces", "copies"])
def test_two_processes_that_a_launcher_starts_make_the_model_of_one(way, compare):
    compare("translation", way, start=launch)


@SLOW
@pytest.mark.parametrize(("kind", "way"), [*product(KINDS, LAUNCHERS), ("mixture", "copies")])
def test_two_processes_make_the_model_of_one(kind, way, compare):
    compare(kind, way)


@SLOW
@pytest.mark.parametrize("way", LAUNCHERS)
def test_two_compiled_processes_make_the_model_of_one_as_it_is_written(way, compare):
    """Of micro-batches of one size, that of ragged ones."""
    compiled = compare("causal_language_modeling", way, in_two={"compile": True})
    summary = json.loads((compiled.folder / "evaluation.json").read_text())
    assert summary["trained_on"]["attention"] == "operator, 2 layers"


@SLOW
@pytest.mark.parametrize("passes", [2, 64])
@pytest.mark.parametrize("way", LAUNCHERS)
def test_two_processes_read_the_predictions_of_one(way, passes, compare):
    """Predictions are made by passes beside that which is learned from, of each process's micro-batches.

    64 are more than a target has tokens, so that targets decide how many there are.
    """
    sampling = {"schedule": "inverse_sigmoid", "final_probability": 0.7, "steepness": 2.0, "passes": passes}
    compare("translation", way, objective={"scheduled_sampling": sampling, "input_noise": 0.1})


@SLOW
@pytest.mark.parametrize("way", LAUNCHERS)
def test_two_processes_make_the_recurrent_translator_of_one(way, compare):
    compare("translation", way, model={"preset": "recurrent-mini", "overrides": {"hidden_size": 32}})


@pytest.mark.parametrize(
    ("kind", "way", "width"),
    [
        pytest.param("muon", "pieces", 32, marks=SLOW),
        ("normuon", "pieces", 32),
        pytest.param("normuon", "copies", SHARED_FROM, marks=SLOW),
    ],
)
def test_two_processes_orthogonalize_as_one(kind, way, width, recipe_on, fork):
    """Within what products of rounded numbers differ; one process goes on where two have stopped."""
    optimizer = {"kind": kind, "learning_rate": 1e-3, "matrix_learning_rate": 1e-2}
    settings = {"precision": "fp32", "tokens_per_micro_batch": 140, "optimizer": optimizer}
    settings["schedule"] = {"kind": "constant"}
    overrides = TINY | {"hidden_size": width, "intermediate_size": 2 * width}
    settings["model"] = {"preset": "encoder-tiny", "overrides": overrides}
    one, _ = recipe_on("masked_language_modeling", "one", steps=6, **settings)
    two, file = recipe_on("masked_language_modeling", "two", steps=4, **settings)
    finish = fork(way, "pretrain", str(file))
    expected = weights_in(pretrain(one))
    finish()
    found = weights_in(pretrain(changed(two, "training", steps=6), resume=True))
    for name, weight in expected.items():
        assert (found[name] - weight).norm() <= 2e-3 * weight.norm(), name
