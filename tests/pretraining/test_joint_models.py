"""Runs that train several models together: what they leave, and that resuming changes nothing."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer

from tercet import TercetEncoderForMaskedLM, TercetEncoderForReplacedTokenDetection
from tercet.configs.recipe import parse_recipe
from tercet.pretraining.model import build_model
from tercet.pretraining.output import run_folder
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.run import pretrain
from tercet.training.tracking import LOG, read_log

from .conftest import recipe_data_of

KIND = "replaced_token_detection"


@pytest.fixture(scope="module")
def runs(texts, tmp_path_factory) -> SimpleNamespace:
    """Run four steps, and two and two with a resumption in between; with dropout."""
    folder = tmp_path_factory.mktemp("runs")

    def recipe_in(name: str, steps: int) -> PretrainingRecipe:
        constant = {"kind": "constant", "warmup_steps": 0}
        data = recipe_data_of(KIND, texts, folder / name, steps=steps, log_every=1, schedule=constant)
        data["model"]["overrides"] = data["model"]["overrides"] | {"dropout": 0.1}
        return parse_recipe(PretrainingRecipe, data)

    pretrain(recipe_in("parts", 2))
    pretrain(recipe_in("parts", 4), resume=True)
    pretrain(recipe_in("whole", 4))
    return SimpleNamespace(whole=folder / "whole", parts=folder / "parts", recipe=recipe_in("whole", 4))


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("name", ["model", "generator"])
def test_a_resumed_run_leaves_both_models_bit_for_bit(runs, name):
    ours, theirs = weights_in(runs.parts / name), weights_in(runs.whole / name)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_a_run_leaves_a_discriminator_and_a_generator(runs):
    model_class: Any = TercetEncoderForReplacedTokenDetection
    detector, loading = model_class.from_pretrained(runs.whole / "model", output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    generator, loading = AutoModelForMaskedLM.from_pretrained(
        runs.whole / "generator", output_loading_info=True
    )
    assert type(generator) is TercetEncoderForMaskedLM
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert torch.equal(
        detector.model.embeddings.embed_tokens.weight, generator.model.embeddings.embed_tokens.weight
    )
    for name, model in (("model", detector), ("generator", generator)):
        tokenizer = AutoTokenizer.from_pretrained(runs.whole / name)
        logits = model(**tokenizer("the [MASK] sat", return_tensors="pt")).logits
        assert logits.shape[:2] == (1, 5)
        assert (runs.whole / name / "recipe.yaml").exists()


def test_terms_are_scored_apart_and_models_are_named(runs):
    told = json.loads((runs.whole / "evaluation.json").read_text())
    assert told["models"] == {
        "model": "TercetEncoderForReplacedTokenDetection",
        "generator": "TercetEncoderForMaskedLM",
    }
    scores = told["scores"]
    assert scores["loss"] == pytest.approx(scores["mlm/loss"] + 50 * scores["rtd/loss"])
    assert 0 < scores["rtd/accuracy"] <= 1
    for record in read_log(runs.whole / LOG)[:4]:
        assert record["loss"] == pytest.approx(record["mlm/loss"] + 50 * record["rtd/loss"], rel=1e-5)


def test_all_that_a_run_leaves_is_its_own_to_replace(runs):
    written = run_folder(runs.recipe).written
    assert {path.name for path in runs.whole.iterdir() if not path.name.startswith(".")} <= set(written)
    assert len(set(written)) == len(written)


def test_a_discriminator_goes_on_learning_with_a_new_generator(runs, texts, tmp_path):
    data = recipe_data_of(KIND, texts, tmp_path / "more")
    del data["tokenizer"]
    recipe = parse_recipe(PretrainingRecipe, data | {"model": {"path": str(runs.whole / "model")}})
    tokenizer = AutoTokenizer.from_pretrained(runs.whole / "model")
    with pytest.warns(UserWarning, match=r"has no weights for generator\.model\..*"):
        pair = build_model(recipe, tokenizer)
    earlier = weights_in(runs.whole / "model")
    ours = pair.get_submodule("discriminator").state_dict()
    assert all(torch.equal(ours[name], earlier[name]) for name in earlier)
    shared = pair.get_submodule("generator.model.embeddings.embed_tokens").weight
    assert torch.equal(shared, earlier["model.embeddings.embed_tokens.weight"])
