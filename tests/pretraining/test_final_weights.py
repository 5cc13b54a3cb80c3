"""Runs that average their weights: what becomes the model, what lies beside it, and what is told of them."""

import json

import pytest
from transformers import AutoModelForCausalLM

from tercet.pretraining.run import pretrain
from tercet.pretraining.verification import verify_resume
from tercet.training.checkpoints.checkpoint import CHECKPOINTS, latest

from ..saved_weights import require_same, weights_in
from .conftest import changed

AVERAGES = {
    "ema_decay": 0.7, "average_checkpoints": 3, "final_weights": "ema", "checkpoint_every": 1,
    "keep_checkpoints": 3, "evaluate_every": 2,
}  # fmt: skip


def told_of(recipe):
    return json.loads((recipe.folder / "evaluation.json").read_text())


def names_below(recipe):
    return {path.name for path in recipe.folder.glob("model*")}


def require_weights(recipe, checkpoint, files):
    """Compare models with the files of the checkpoint at the end of the run that they are to equal."""
    for name, file in files.items():
        model = AutoModelForCausalLM.from_pretrained(recipe.folder / name)
        expected, own = weights_in(checkpoint, file), model.state_dict()
        require_same({key: own[key] for key in expected}, expected)


def test_the_average_is_the_model_and_the_others_lie_beside_it(recipe_on):
    recipe, _ = recipe_on("causal_language_modeling", **AVERAGES)
    folder = pretrain(recipe)
    checkpoint = latest(recipe.folder / CHECKPOINTS)
    assert checkpoint is not None
    assert names_below(recipe) == {"model", "model-last", "model-mean"}
    require_weights(recipe, checkpoint, {"model": "ema", "model-last": "model", "model-mean": "mean"})
    told = told_of(recipe)
    assert told["weights"] == "ema"
    measured = {name for name in told["scores"] if not name.endswith("/interval")}
    assert measured == told["scores_of_other_weights"]["last"].keys()
    assert told["scores_of_other_weights"].keys() == {"last", "mean"}
    scores = json.loads((checkpoint / "state.json").read_text())["scores"]
    assert told["scores"]["loss"] == scores["ema/loss"]
    assert told["scores_of_other_weights"]["last"]["loss"] == scores["loss"]
    assert told["best"] == pytest.approx(told["scores"]["loss"]), "judged by the average"

    assert pretrain(changed(recipe, "training", final_weights="last"), resume=True) == folder
    assert names_below(recipe) == {"model", "model-ema", "model-mean"}
    require_weights(recipe, checkpoint, {"model": "model", "model-ema": "ema", "model-mean": "mean"})
    assert told_of(recipe)["scores"]["loss"] == scores["loss"]

    pretrain(changed(recipe, "training", ema_decay=None, final_weights=None), overwrite=True)
    assert names_below(recipe) == {"model", "model-last"}


def test_a_run_without_averages_has_one_model(recipe_on):
    recipe, _ = recipe_on("causal_language_modeling", steps=2)
    pretrain(recipe)
    assert names_below(recipe) == {"model"}
    assert (told_of(recipe)["weights"], told_of(recipe)["scores_of_other_weights"]) == ("last", {})


def test_averages_that_cannot_be_made_are_refused(recipe_on):
    with pytest.raises(ValueError, match="training: average_checkpoints = 3, but a run of 4 steps has 1"):
        recipe_on("causal_language_modeling", average_checkpoints=3)


@pytest.mark.slow
def test_a_run_with_normuon_stages_and_averages_is_resumed_bit_for_bit(recipe_on):
    """Killed twice; a shorter length and smaller steps give way to others amid the run."""
    recipe, _ = recipe_on(
        "masked_language_modeling",
        steps=6,
        stages=[
            {"steps": 1, "sequence_length": 16, "tokens_per_step": 128},
            {"steps": 2, "sequence_length": 32},
        ],
        optimizer={"kind": "normuon", "learning_rate": 4e-3},
        schedule={"kind": "warmup_stable_decay", "decay_shape": "linear", "decay_ratio": 0.5},
        **AVERAGES,
    )
    found = verify_resume(recipe, steps=6)
    assert found.is_exact
    assert len(found.resumed.kills) == 2
    assert {"model.safetensors", "ema.safetensors", "optimizer.pt"} < found.resumed.states.keys()
