"""A run that trains an ELMo: what it writes is loaded with its spelling, and resumed bit for bit."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForPreTraining, AutoTokenizer

from tercet import TercetElmoForLanguageModeling
from tercet.configs.recipe import parse_recipe
from tercet.planning.plan import require_planned_kind
from tercet.pretraining.model import build_config
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.run import pretrain


@pytest.fixture
def recipe_in(texts, tmp_path):
    """Give the function that makes recipes of a small ELMo, of so many steps."""

    def recipe_in(name: str, steps: int = 2, **training) -> PretrainingRecipe:
        data = {
            "model": {
                "preset": "elmo-mini",
                "overrides": {"hidden_size": 16, "lstm_cell_size": 24, "character_filters": [[2, 8]]},
            },
            "tokenizer": {"kind": "words", "vocab_size": 520},
            "corpus": {
                "train": str(texts / "train.txt"),
                "validation": str(texts / "validation.txt"),
                "sequence_length": 32,
                "cache": str(texts / "cache"),
            },
            "objective": {"kind": "bidirectional_language_modeling"},
            "training": {"tokens_per_step": 512, "measure_utilization": False, "steps": steps} | training,
            "output": str(tmp_path / name),
        }
        return parse_recipe(PretrainingRecipe, data)

    return recipe_in


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


def test_a_resumed_run_equals_an_uninterrupted_one(recipe_in):
    schedule = {"schedule": {"kind": "constant"}, "checkpoint_every": 2}
    whole = pretrain(recipe_in("whole", 4, **schedule))
    pretrain(recipe_in("parts", 2, **schedule))
    parts = pretrain(recipe_in("parts", 4, **schedule), resume=True)
    expected, found = (load_file(folder / "model.safetensors") for folder in (whole, parts))
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_training_goes_on_from_a_finished_model(recipe_in):
    folder = pretrain(recipe_in("first"))
    second = recipe_in("second")
    model = replace(second.model, preset=None, path=str(folder), overrides={})
    tokenizer = replace(second.tokenizer, path=str(folder))
    again = pretrain(replace(second, model=model, tokenizer=tokenizer))
    first, last = (load_file(path / "model.safetensors") for path in (folder, again))
    assert torch.equal(first["model.spelling.codes"], last["model.spelling.codes"])
    assert not torch.equal(first["lm_head.weight"], last["lm_head.weight"])


def test_costs_and_growth_are_those_of_transformers_alone(recipe_in):
    recipe = recipe_in("run")
    with pytest.raises(ValueError, match="trains a TercetElmoForLanguageModeling, whose costs cannot be"):
        require_planned_kind(recipe)
    with pytest.raises(ValueError, match="is a tercet_decoder, but bidirectional_language_modeling trains"):
        build_config(replace(recipe, model=replace(recipe.model, preset="decoder-mini", overrides={})))
