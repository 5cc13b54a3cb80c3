"""Runs on characters: what they leave, resume and stream, and what their vectors are for."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from tercet.configs.recipe import parse_recipe, recipe_data
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.run import pretrain

KIND = "character_language_modeling"


def changed(recipe: PretrainingRecipe, part: str, **fields) -> PretrainingRecipe:
    data = recipe_data(recipe)
    return parse_recipe(PretrainingRecipe, data | {part: data[part] | fields})


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


@pytest.mark.parametrize("corpus", [{}, {"isolate_documents": False}, {"streaming": True}], ids=str)
def test_a_resumed_run_equals_an_uninterrupted_one(corpus, texts, tmp_path, recipe_of):
    def run(name: str, steps: int, **options):
        settings = {"schedule": {"kind": "constant", "warmup_steps": 0}, "steps": steps}
        return pretrain(
            changed(recipe_of(KIND, texts, tmp_path / name, **settings), "corpus", **corpus), **options
        )

    run("parts", 2)
    parts, whole = run("parts", 4, resume=True), run("whole", 4)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (parts, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_other_members_and_impossible_growth_are_refused(texts, tmp_path, recipe_of):
    recipe = recipe_of(KIND, texts, tmp_path / "run")
    with pytest.raises(ValueError, match=r"trains a tercet_character: choose one of character-base, char"):
        pretrain(changed(recipe, "model", preset="encoder-tiny", overrides={}))
    folder = pretrain(recipe)
    with pytest.raises(ValueError, match="is a tercet_character, but only Transformers grow"):
        pretrain(changed(recipe_of(KIND, texts, tmp_path / "grown"), "model", grow_from=str(folder)))


def test_a_model_goes_on_learning(texts, tmp_path, recipe_of):
    first = pretrain(recipe_of(KIND, texts, tmp_path / "first"))
    recipe = recipe_of(KIND, texts, tmp_path / "second", optimizer={"learning_rate": 1e-30})
    recipe = changed(changed(recipe, "model", preset=None, path=str(first)), "tokenizer", path=str(first))
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (pretrain(recipe), first))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
