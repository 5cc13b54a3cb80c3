"""A run that trains an ELMo: what it writes is loaded with its spelling."""

import json

import pytest
import torch
from transformers import AutoModelForPreTraining, AutoTokenizer

from tercet import TercetElmoForLanguageModeling
from tercet.pretraining.run import pretrain
from tercet.tools.plan.plan import require_planned_kind

from ..pretraining_parts import first_model_of
from ..saved_weights import weights_in
from .conftest import changed


@pytest.fixture
def recipe_in(texts, tmp_path, recipe_of):
    return lambda name: recipe_of("bidirectional_language_modeling", texts, tmp_path / name)


def test_what_is_left_is_loaded_by_the_auto_classes_and_knows_its_tokens(recipe_in):
    folder = pretrain(recipe_in("run"))
    model = AutoModelForPreTraining.from_pretrained(folder).eval()
    assert isinstance(model, TercetElmoForLanguageModeling)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.model_input_names == ["input_ids", "attention_mask"]
    assert model.config.unk_token_id == tokenizer.unk_token_id
    batch = tokenizer(["the cat sat", "an unheardof fish"], padding=True, return_tensors="pt")
    loss = model(**batch, labels=batch["input_ids"]).loss
    assert torch.isfinite(loss)
    scores = json.loads((folder.parent / "evaluation.json").read_text(encoding="utf-8"))
    assert {"forward/loss", "backward/loss"} <= set(scores["scores"])
    # Of the words of the text, only three have a place behind special tokens and bytes.
    assert 0.2 < scores["held_out"]["unknown_tokens"] < 1


def test_training_goes_on_from_a_finished_model(recipe_in):
    folder = pretrain(recipe_in("first"))
    second = changed(recipe_in("second"), "model", preset=None, path=str(folder), overrides={})
    again = pretrain(changed(second, "tokenizer", path=str(folder)))
    first, last = weights_in(folder), weights_in(again)
    assert torch.equal(first["model.spelling.codes"], last["model.spelling.codes"])
    assert not torch.equal(first["lm_head.weight"], last["lm_head.weight"])


def test_costs_are_those_of_transformers_alone(recipe_in):
    recipe = recipe_in("run")
    with pytest.raises(ValueError, match="trains a TercetElmoForLanguageModeling, whose costs cannot be"):
        require_planned_kind(recipe.objective.kind, recipe.objective.model_class)
    with pytest.raises(ValueError, match="is a tercet_decoder, but bidirectional_language_modeling trains"):
        first_model_of(changed(recipe, "model", preset="decoder-mini", overrides={}))
