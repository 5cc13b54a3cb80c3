"""Each shipped recipe of pretraining, on a page of text and a tiny model, does what it asks for."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tercet.configs.recipe import load_preset, parse_recipe, read_recipe
from tercet.modeling.saved.weights import hash_of_weights
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.run import pretrain
from tercet.training.checkpoints.checkpoint import CHECKPOINTS, latest
from tercet.training.checkpoints.final_weights import FILES
from tercet.training.tracking import read_log

from .conftest import MASKED, OVERRIDES, TINY, recipe_data_of

RECIPES = sorted(file.stem for file in (Path(__file__).parents[2] / "configs" / "pretraining").glob("*.yaml"))
STEPS = 4
TRAINING = {
    "steps": STEPS, "tokens_per_step": 512, "tokens_per_micro_batch": 256, "evaluate_every": 2,
    "checkpoint_every": 2, "keep_checkpoints": 4, "log_every": 1, "precision": "fp32",
    "measure_utilization": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def begun(texts, tmp_path_factory):
    """Give the models that recipes begin with: an encoder and a decoder."""
    folder = tmp_path_factory.mktemp("begun")
    kinds = {"encoder-english": MASKED, "decoder-english": "causal_language_modeling"}
    for name, kind in kinds.items():
        pretrain(parse_recipe(PretrainingRecipe, recipe_data_of(kind, texts, folder / name)))
    return folder


def small(name: str, texts: Path, begun: Path, output: Path) -> PretrainingRecipe:
    """Give a shipped recipe a tiny model, a page of text and four steps; all else stays what it is."""
    _, data = read_recipe(name, [], kind="pretraining")
    model, corpus, training = data["model"], data["corpus"], data["training"]
    if "path" in model:
        model["path"] = str(begun / Path(model["path"]).parts[1] / "model")
    else:
        member = load_preset(model["preset"])["model_type"]
        tiny = (
            {"hidden_size": 32} if "recurrent" in member else OVERRIDES.get(data["objective"]["kind"], TINY)
        )
        model["overrides"] = {**model.get("overrides", {}), **tiny}
        data["tokenizer"]["vocab_size"] = 520 if data["tokenizer"]["kind"] == "words" else 400
    ending = "jsonl" if "source_column" in corpus else "txt"
    corpus |= {split: str(texts / f"{split}.{ending}") for split in ("train", "validation")}
    corpus |= {"sequence_length": 64, "cache": str(texts / "cache")}
    corpus |= {"source_column": "left", "target_column": "right"} if ending == "jsonl" else {}
    stages = [
        {"steps": 1, "tokens_per_step": 256, "sequence_length": 32}
        if "sequence_length" in stage
        else stage | {"steps": 1}
        for stage in training.get("stages", [])
    ]
    data["training"] = training | TRAINING | ({"stages": stages} if stages else {})
    if "average_checkpoints" in training:
        data["training"]["average_checkpoints"] = 2
    return parse_recipe(PretrainingRecipe, data | {"output": str(output)})


def require_accounts(run: Path, training, said: str) -> dict:
    """Compare what a run says that it did with its recipe, its log and the weights on disk."""
    told = json.loads((run / "evaluation.json").read_text())
    records = [record for record in read_log(run / "log.jsonl") if "tokens" in record and "loss" in record]
    assert told["step"] == training.steps
    assert told["skipped"] == 0
    assert sum(told["examples_of_epochs"]) == told["examples"] > 0
    assert sum(told["targets_of"].values()) == told["targets"] > 0
    assert {"tokens": told["tokens"], "examples": told["examples"]}.items() <= records[-1].items()
    assert (
        0.5 * training.tokens_asked(training.steps) < told["tokens"] <= training.tokens_asked(training.steps)
    )
    assert ("has learned from" in said) == (told["tokens"] <= 0.7 * training.tokens_asked(training.steps))
    assert told["scored"] == told["saved"]
    assert told["weights"] in told["saved"]
    assert told["saved"].keys() == {told["weights"], *told["scores_of_other_weights"]}
    checkpoint = latest(run / CHECKPOINTS)
    assert checkpoint is not None
    for kind in told["saved"]:  # on disk, where tied weights have one name
        kept = load_file(checkpoint / FILES[kind])
        own = run / ("model" if kind == told["weights"] else f"model-{kind}")
        if len(told.get("models", {})) == 1 and not any(name.startswith("student.") for name in kept):
            saved = load_file(own / "model.safetensors")
            assert Counter(hash_of_weights({"": each}) for each in saved.values()) <= Counter(
                hash_of_weights({"": each}) for each in kept.values()
            )
    return told


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_a_shipped_recipe_learns_from_as_much_as_it_asks_for(name, texts, begun, tmp_path, capsys):
    recipe = small(name, texts, begun, tmp_path / "run")
    pretrain(recipe)
    require_accounts(recipe.folder, recipe.training, capsys.readouterr().err)


def test_weights_that_are_saved_are_those_that_were_scored(recipe_of, texts, tmp_path, capsys, monkeypatch):
    recipe = recipe_of(
        "causal_language_modeling", texts, tmp_path / "run", ema_decay=0.5, final_weights="last"
    )
    pretrain(recipe)
    told = require_accounts(recipe.folder, recipe.training, capsys.readouterr().err)
    assert len({*told["saved"].values()}) == 2
    monkeypatch.setattr(
        "tercet.training.checkpoints.final_weights.FILES",
        {"last": "ema.safetensors", "ema": "ema.safetensors"},
    )
    pretrain(replace(recipe, output=str(tmp_path / "wrong")))
    assert "wrong: the scores of the weights 'last' are of other numbers" in capsys.readouterr().err
