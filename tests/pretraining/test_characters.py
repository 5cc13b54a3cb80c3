"""Runs on characters: what they leave, and what their vectors are for."""

import json

import torch
from transformers import AutoModel, AutoTokenizer

from ..reported import pretrain
from ..saved_weights import require_same_models
from .conftest import changed

KIND = "character_language_modeling"


def test_a_run_leaves_vectors_of_words_and_the_level_that_they_must_beat(texts, tmp_path, recipe_of):
    folder = pretrain(recipe_of(KIND, texts, tmp_path / "run"))
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    ids = tokenizer("the cat")["input_ids"]
    assert ids[0] == ids[-1] == tokenizer.eos_token_id == model.config.eos_token_id
    assert len(ids) == len("the cat") + 2
    with torch.no_grad():
        (vectors,) = model.embed_words(tokenizer, [["the", "cat"]])
        states = model(torch.tensor([ids])).last_hidden_state[0]
    forward, backward = states.chunk(2, dim=-1)
    torch.testing.assert_close(vectors, torch.cat([forward[[3, 7]], backward[[1, 5]]], dim=-1))
    summary = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert summary["without_context"].keys() == {"forward", "backward"}
    assert {"forward/bits_per_byte", "backward/bits_per_byte"} <= summary["scores"].keys()


def test_a_model_goes_on_learning(texts, tmp_path, recipe_of):
    first = pretrain(recipe_of(KIND, texts, tmp_path / "first"))
    recipe = recipe_of(KIND, texts, tmp_path / "second", optimizer={"learning_rate": 1e-30})
    recipe = changed(changed(recipe, "model", preset=None, path=str(first)), "tokenizer", path=str(first))
    require_same_models(pretrain(recipe), first)
