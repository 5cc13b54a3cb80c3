"""Runs that cannot be: each is refused in one line, and whatever was there before stays."""

import json
import os
import stat
import time
from dataclasses import replace

import pytest

from tercet.pretraining import added_terms, tokenizer
from tercet.pretraining.recipe import ModelRecipe, TokenizerRecipe
from tercet.pretraining.run import pretrain, train_recipe_tokenizer

from .conftest import changed


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"tokens_per_step": 10**6}, "fewer than tokens_per_step"),
        ({"tokens_per_micro_batch": 16}, "does not fit tokens_per_micro_batch"),
    ],
)
def test_impossible_run_is_refused_and_leaves_its_folder_free(training, message, texts, tmp_path, recipe_of):
    with pytest.raises(ValueError, match=message):
        pretrain(recipe_of("masked_language_modeling", texts, tmp_path / "run", **training))
    pretrain(recipe_of("masked_language_modeling", texts, tmp_path / "run"))


def test_translation_needs_the_names_of_both_columns(texts, tmp_path, recipe_of):
    recipe = changed(recipe_of("translation", texts, tmp_path / "run"), target_column=None)
    with pytest.raises(ValueError, match=r"corpus\.target_column is None"):
        pretrain(recipe)


PAGE = "the cat sat.\nthe dog ran."
BROKEN_TEXTS = {
    "nowhere": ({}, FileNotFoundError, r"missing\.txt does not exist"),
    "broken": ({"train.txt": b"one\n\n\xe9"}, ValueError, r"train\.txt, line 3: byte 0xe9"),
    "broken to the measure": ({"validation.txt": b"\xe9"}, ValueError, r"validation\.txt, line 1: byte 0xe9"),
    "empty": ({"train.txt": b"\n\n"}, ValueError, r"train\.txt has no text"),
    "small": ({"train.txt": PAGE.encode()}, ValueError, "fewer than tokens_per_step"),
    "no column": ({"train.jsonl": b'{"body": "a"}'}, ValueError, "no column 'text'"),
}


@pytest.mark.parametrize("name", BROKEN_TEXTS)
def test_earlier_run_survives_a_text_that_cannot_be_learned_from(name, texts, tmp_path, recipe_of):
    files, kind, message = BROKEN_TEXTS[name]
    recipe = recipe_of("masked_language_modeling", texts, tmp_path / "run")
    folder = pretrain(recipe)
    sources = {} if files else {"train": str(tmp_path / "missing.txt")}
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
        sources[file.partition(".")[0]] = str(tmp_path / file)
    for command in (pretrain, train_recipe_tokenizer):
        if command is pretrain or name not in ("broken to the measure", "small"):
            with pytest.raises(kind, match=message):
                command(changed(recipe, **sources), overwrite=True)
    assert (folder / "model.safetensors").exists()
    pretrain(recipe, resume=True)


def test_held_out_text_that_is_too_short_is_named(texts, tmp_path, recipe_of):
    (tmp_path / "short.txt").write_text("a\n\na")
    recipe = recipe_of("prefix_language_modeling", texts, tmp_path / "run")
    with pytest.raises(ValueError, match=r"^corpus.validation: corpus has no document of 2 tokens"):
        pretrain(changed(recipe, validation=str(tmp_path / "short.txt")))


def test_earlier_run_survives_a_pair_that_fits_no_micro_batch(texts, tmp_path, recipe_of):
    """Be it a pair that is measured on only."""
    recipe = recipe_of("translation", texts, tmp_path / "run")
    folder = pretrain(recipe)
    (tmp_path / "long.jsonl").write_text(json.dumps({"left": "cat " * 15, "right": "dog " * 15}))
    other = changed(recipe, validation=str(tmp_path / "long.jsonl"))
    with pytest.raises(ValueError, match="does not fit tokens_per_micro_batch = 90"):
        pretrain(changed(other, "training", tokens_per_micro_batch=90), overwrite=True)
    assert (folder / "model.safetensors").exists()


def test_a_run_does_not_rename_the_tokenizer_that_it_reads(texts, tmp_path, recipe_of):
    recipe = recipe_of("masked_language_modeling", texts, tmp_path / "run")
    pretrain(recipe)
    own = changed(recipe, "tokenizer", path=str(tmp_path / "run" / "tokenizer"))
    with pytest.raises(ValueError, match=r"tokenizer\.path is .*, which lies in the folder"):
        pretrain(own, overwrite=True)
    assert (tmp_path / "run" / "tokenizer" / "tokenizer.json").exists()


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_a_run_is_replaced_whole_and_the_umask_says_who_may_read_it(mask, texts, tmp_path, recipe_of):
    recipe = recipe_of("causal_language_modeling", texts, tmp_path / "run")
    earlier = os.umask(mask)
    try:
        pretrain(recipe)
        before = {path for path in (tmp_path / "run").rglob("*") if "step-" not in path.name}
        (tmp_path / "run" / "checkpoints" / "notes.txt").write_text("years of work")
        pretrain(recipe, overwrite=True)
    finally:
        os.umask(earlier)
    assert {path for path in (tmp_path / "run").rglob("*") if "step-" not in path.name} == before
    assert (tmp_path / "run.previous" / "checkpoints" / "notes.txt").exists()
    for path in (tmp_path / "run", *(tmp_path / "run").rglob("*")):
        whole = 0o777 if path.is_dir() else 0o666
        assert stat.S_IMODE(path.stat().st_mode) == whole & ~mask, path


def test_a_model_is_not_renamed_by_the_run_that_goes_on_from_it(texts, tmp_path, recipe_of):
    recipe = recipe_of("causal_language_modeling", texts, tmp_path / "run")
    folder = pretrain(recipe)
    more = replace(recipe, model=ModelRecipe(path=str(folder)), tokenizer=TokenizerRecipe(path=None))
    for options in ({"overwrite": True}, {"resume": True}):
        with pytest.raises(ValueError, match=r"model\.path is .*, which lies in the folder"):
            pretrain(more, **options)
    assert (folder / "model.safetensors").exists()


def test_a_tokenizer_is_trained_once_for_the_same_text(texts, tmp_path, monkeypatch, recipe_of):
    recipe = recipe_of("masked_language_modeling", texts, tmp_path / "first")
    cached = changed(recipe, cache=str(tmp_path / "cache"))
    first = train_recipe_tokenizer(cached)
    facts = json.loads((first / "tokenizer_config.json").read_text())
    assert facts["tokenizer_class"] == "PreTrainedTokenizerFast"  # which every version loads
    monkeypatch.setattr("tercet.pretraining.tokenizer.train_tokenizer", None)
    second = train_recipe_tokenizer(replace(cached, output=str(tmp_path / "second")))
    for file in first.iterdir():
        assert (second / file.name).read_bytes() == file.read_bytes()
    other = changed(replace(cached, output=str(tmp_path / "third")), "tokenizer", vocab_size=99)
    with pytest.raises(TypeError):
        train_recipe_tokenizer(other)


@pytest.mark.parametrize("file", ["train.txt", "terms.txt"])
def test_a_tokenizer_of_other_contents_is_not_used(file, tmp_path, recipe_of):
    """Its files have the same names, so the recipe does not tell."""
    for name in ("train.txt", "validation.txt", "terms.txt"):
        (tmp_path / name).write_text("the cat sat on the mat " * 20 + name)
    recipe = recipe_of("causal_language_modeling", tmp_path, tmp_path / "run")
    recipe = changed(recipe, "tokenizer", add=str(tmp_path / "terms.txt"))
    first = train_recipe_tokenizer(recipe)
    assert train_recipe_tokenizer(recipe) == first
    (tmp_path / file).write_text("another text " * 20)
    for command in (pretrain, train_recipe_tokenizer):
        with pytest.raises(ValueError, match=r"run.tokenizer was made of other text, or other terms"):
            command(recipe)
    train_recipe_tokenizer(recipe, overwrite=True)
    assert train_recipe_tokenizer(recipe) == first


@pytest.mark.parametrize("learns", ["a vocabulary", "terms"])
def test_a_tokenizer_is_not_kept_for_a_text_that_changes_meanwhile(learns, tmp_path, monkeypatch, recipe_of):
    for name in ("train.txt", "validation.txt"):
        (tmp_path / name).write_text("the cat sat on the mat " * 20 + name)
    recipe = recipe_of("causal_language_modeling", tmp_path, tmp_path / "run")
    learner, name = (tokenizer, "train_tokenizer")
    if learns == "terms":
        learner, name = (added_terms, "learn_terms")
    original = getattr(learner, name)

    def learn_slowly(*arguments, **options):
        (tmp_path / "train.txt").write_text("another text " * 20 + str(time.time_ns()))
        return original(*arguments, **options)

    if learns == "terms":
        recipe = changed(recipe, "tokenizer", add_learned=2)
    monkeypatch.setattr(learner, name, learn_slowly)
    with pytest.raises(ValueError, match=r"train\.txt has changed while it was read"):
        train_recipe_tokenizer(recipe)
    assert len([*(tmp_path / "cache" / "tokenizers").iterdir()]) == (learns == "terms")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"schedule": {"warmup_steps": 3}}, "warmup_steps = 3 exceeds steps = 2"),
        (
            {"schedule": {"kind": "noam", "warmup_steps": 1}, "optimizer": {"learning_rate": 1e-3}},
            "the noam schedule derives",
        ),
        ({"patience": 2}, "training: patience = 2, but there is no evaluation"),
        ({"stages": [{"steps": 2}]}, "training: stages last 2 steps"),
        ({"stages": [{"steps": 1, "sequence_length": 65}]}, "sequence_length = 65 exceeds"),
    ],
)
def test_what_needs_no_text_is_refused_before_any_is_read(
    training, message, texts, tmp_path, monkeypatch, recipe_of
):
    monkeypatch.setattr("tercet.pretraining.tokenizer.TokenizerSource.trained", None)
    with pytest.raises(ValueError, match=message):
        pretrain(recipe_of("masked_language_modeling", texts, tmp_path / "run", **training))
    assert not (tmp_path / "run").exists()
