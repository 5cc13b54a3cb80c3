"""Runs that train several models together, and what they leave."""

import json
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from tercet import TercetEncoderForMaskedLM, TercetEncoderForReplacedTokenDetection
from tercet.configs.recipe import parse_recipe
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.training.tracking import LOG, read_log

from ..pretraining_parts import model_of
from ..reported import pretrain
from ..saved_weights import weights_in
from .conftest import recipe_data_of

KIND = "replaced_token_detection"


@pytest.fixture(scope="module")
def recipe(texts, tmp_path_factory) -> PretrainingRecipe:
    """Run four steps."""
    data = recipe_data_of(KIND, texts, tmp_path_factory.mktemp("runs") / "run", steps=4, log_every=1)
    recipe = parse_recipe(PretrainingRecipe, data)
    pretrain(recipe)
    return recipe


def test_a_run_leaves_a_discriminator_and_a_generator(recipe):
    model_class: Any = TercetEncoderForReplacedTokenDetection
    detector, loading = model_class.from_pretrained(recipe.folder / "model", output_loading_info=True)
    generator, also = AutoModelForMaskedLM.from_pretrained(
        recipe.folder / "generator", output_loading_info=True
    )
    assert type(generator) is TercetEncoderForMaskedLM
    assert not any(told[name] for told in (loading, also) for name in ("missing_keys", "unexpected_keys"))
    shared = [model.get_input_embeddings().weight for model in (detector, generator)]
    assert torch.equal(*shared)
    for name, model in (("model", detector), ("generator", generator)):
        tokenizer = AutoTokenizer.from_pretrained(recipe.folder / name)
        logits = model(**tokenizer("the [MASK] sat", return_tensors="pt")).logits
        assert logits.shape[:2] == (1, 5)
        assert (recipe.folder / name / "recipe.yaml").exists()


def test_terms_are_scored_apart_and_models_are_named(recipe):
    told = json.loads((recipe.folder / "evaluation.json").read_text())
    assert told["models"] == {
        "model": "TercetEncoderForReplacedTokenDetection",
        "generator": "TercetEncoderForMaskedLM",
    }
    scores = told["scores"]
    assert scores["loss"] == pytest.approx(scores["mlm/loss"] + 50 * scores["rtd/loss"])
    assert 0 < scores["rtd/accuracy"] <= 1
    for record in read_log(recipe.folder / LOG)[:4]:
        assert record["loss"] == pytest.approx(record["mlm/loss"] + 50 * record["rtd/loss"], rel=1e-5)


def test_a_discriminator_goes_on_learning_with_a_new_generator(recipe, texts, tmp_path):
    data = recipe_data_of(KIND, texts, tmp_path / "more")
    del data["tokenizer"]
    more = parse_recipe(PretrainingRecipe, data | {"model": {"path": str(recipe.folder / "model")}})
    tokenizer = AutoTokenizer.from_pretrained(recipe.folder / "model")
    with pytest.warns(UserWarning, match=r"has no weights for generator\.model\..*"):
        pair = model_of(more, tokenizer)
    earlier = weights_in(recipe.folder / "model")
    ours = pair.get_submodule("discriminator").state_dict()
    assert all(torch.equal(ours[name], earlier[name]) for name in earlier)
    shared = pair.get_submodule("generator.model.embeddings.embed_tokens").weight
    assert torch.equal(shared, earlier["model.embeddings.embed_tokens.weight"])
