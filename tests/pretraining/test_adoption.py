"""A published checkpoint goes on learning by its name alone, with words of one's own."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from tercet.configs.recipe import parse_recipe
from tercet.data.tokenizers.tokenizer import load_tokenizer, train_tokenizer
from tercet.pretraining.prepared import find_inputs, prepare
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.tools.plan.model_costs import build_planned_model
from tercet.training.devices.precision import build_accelerator
from tercet.training.tracking import LOG, read_log

from ..pretraining_parts import first_model_of, model_of, tokenizer_of
from ..reported import pretrain
from ..stock_models import SIZES, stock_class, stock_model
from .conftest import TINY, WORDS, recipe_data_of

MASKED, CAUSAL = "masked_language_modeling", "causal_language_modeling"
DENOISING, SPANS = "denoising", "span_corruption"
LEARNS = {
    "bert": ("wordpiece", MASKED),
    "roberta": ("byte_bpe", MASKED),
    "modernbert": ("byte_bpe", MASKED),
    "llama": ("byte_bpe", CAUSAL),
    "qwen2": ("byte_bpe", CAUSAL),
    "gpt2": ("byte_bpe", CAUSAL),
    "bart": ("byte_bpe", DENOISING),
    "t5": ("unigram", SPANS),
}
"""Stock model -> its kind of tokenizer, and what it goes on to learn."""


@pytest.fixture(scope="module")
def tokenizers():
    """Train tokenizers for the text of the runs, which lack some of its words."""
    text = [" ".join(words) + "." for words in (WORDS[:9], WORDS[3:9], "bigunder")] * 5
    return {
        kind: train_tokenizer(text, kind, size, sentinels=10 if kind == "unigram" else 0)
        for kind, size in {"wordpiece": 60, "byte_bpe": 290, "unigram": 60}.items()
    }


def published(folder: Path, name: str, tokenizers) -> Path:
    """Save a stock checkpoint with its tokenizer, as it lies on the Hub."""
    tokenizer = tokenizers[LEARNS[name][0]]
    ids = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("pad", "bos", "eos")}
    if name == "bart":
        ids |= {"decoder_start_token_id": ids["eos_token_id"], "forced_eos_token_id": ids["eos_token_id"]}
    if name == "t5":
        ids |= {"decoder_start_token_id": ids["pad_token_id"]}
    if name == "modernbert":
        ids |= {"cls_token_id": ids["bos_token_id"], "sep_token_id": ids["eos_token_id"]}
    positions = {} if name in ("gpt2", "bart", "t5") else {"max_position_embeddings": 72}
    torch.manual_seed(0)
    stock_model(name, vocab_size=len(tokenizer), **positions, **ids).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def recipe_for(kind: str, texts: Path, output: Path, model: dict, **tokenizer) -> PretrainingRecipe:
    recipe = parse_recipe(PretrainingRecipe, recipe_data_of(kind, texts, output))
    return replace(
        recipe,
        model=replace(recipe.model, **model),
        tokenizer=replace(recipe.tokenizer, path=str(model["path"]), **tokenizer),
    )


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] if each == "t5" else []) for each in LEARNS]
)
def test_a_stock_checkpoint_goes_on_with_its_function_and_its_tokenizer(
    name, tokenizers, texts, tmp_path, capsys
):
    kind, objective = LEARNS[name]
    folder = published(tmp_path / "published", name, tokenizers)
    recipe = recipe_for(objective, texts, tmp_path / "run", {"path": str(folder)})
    model = model_of(recipe, load_tokenizer(str(folder))).eval()
    said = capsys.readouterr().err
    assert f"{folder}: imported from {name}, in " in said
    assert "are equal" in said
    stock = stock_class(name).from_pretrained(folder).eval()
    text = tokenizers[kind]("the cat sat under a tree", add_special_tokens=False)
    ids = torch.tensor([text["input_ids"]])
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if stock.config.is_encoder_decoder else {})
    torch.testing.assert_close(model(**inputs).logits, stock(**inputs).logits, rtol=1e-4, atol=1e-5)
    model_of(recipe, load_tokenizer(str(folder)))
    assert "imported" not in capsys.readouterr().err  # it lies in the cache
    assert build_planned_model(recipe).config.vocab_size == stock.config.vocab_size


def test_a_model_replaces_a_preset_and_its_overrides(tokenizers, texts, tmp_path, capsys):
    folder = published(tmp_path / "published", "llama", tokenizers)
    recipe = recipe_for(CAUSAL, texts, tmp_path / "run", {"path": str(folder)})
    assert recipe.model.preset == "decoder-tiny"
    assert recipe.model.overrides == TINY
    assert find_inputs(recipe).model.config.intermediate_size == SIZES["intermediate_size"]
    words = f"{folder} replaces the preset decoder-tiny and its overrides (hidden_size, intermediate_size"
    assert words in capsys.readouterr().err
    alone = replace(recipe, model=replace(recipe.model, preset=None, overrides={"attention_dropout": 0.25}))
    assert first_model_of(alone).config.attention_dropout == 0.25


@pytest.mark.parametrize(
    ("name", "objective", "message"),
    [
        ("llama", MASKED,
         r"a llama, with Tercet a tercet_decoder, but .* adapt-decoder .*, set objective.kind to causal"),
        ("bert", CAUSAL,
         r"a bert, with Tercet a tercet_encoder, but .* adapt-encoder .*, set objective.kind to masked"),
    ],
)  # fmt: skip
def test_an_objective_that_the_model_cannot_learn_is_refused(
    name, objective, message, tokenizers, texts, tmp_path
):
    folder = published(tmp_path / "published", name, tokenizers)
    with pytest.raises(ValueError, match=message):
        first_model_of(recipe_for(objective, texts, tmp_path / "run", {"path": str(folder)}))


def test_an_architecture_that_is_none_of_ours_is_refused(texts, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    with pytest.raises(ValueError, match=r"'mamba' cannot be imported: supported architectures are bart"):
        first_model_of(recipe_for(CAUSAL, texts, tmp_path / "run", {"path": str(tmp_path / "other")}))


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_terms_change_no_logits_of_a_text_without_them(name, tokenizers, texts, tmp_path, capsys):
    folder = published(tmp_path / "published", name, tokenizers)
    add = {"add": ["under", "big tree", "the", "under"]}
    recipe = recipe_for(LEARNS[name][1], texts, tmp_path / "run", {"path": str(folder)}, **add)
    parts = prepare(find_inputs(recipe), build_accelerator(recipe.training, tmp_path), None)
    said = capsys.readouterr().err
    # To the llama's tokenizer, "the" is one token at the beginning of a text alone.
    assert ("1 were one token already (the)" in said) == (name == "bert")
    assert "the held-out text has " in said
    old = tokenizers[LEARNS[name][0]]
    number = len(old)
    ids = old("the cat sat", add_special_tokens=False)["input_ids"]
    assert parts.tokenizer("the cat sat", add_special_tokens=False)["input_ids"] == ids
    stock = stock_class(name).from_pretrained(folder).eval()
    before = stock(torch.tensor([ids])).logits
    after = parts.model.eval()(torch.tensor([ids])).logits
    torch.testing.assert_close(after[..., :number], before, rtol=1e-4, atol=1e-5)
    pieces = old("big tree", add_special_tokens=False)["input_ids"]
    table, own = (each.get_input_embeddings().weight for each in (parts.model, stock))
    torch.testing.assert_close(table[parts.tokenizer.get_vocab()["big tree"]], own[pieces].mean(0))
    about = parts.data.held_out.about
    assert about["tokens"] < about["tokens_before"]
    planned = build_planned_model(recipe).config.vocab_size
    assert planned == len(parts.tokenizer) == parts.model.config.vocab_size


def test_a_model_with_another_tokenizer_begins_and_ends_texts_with_the_same_tokens(
    tokenizers, texts, tmp_path
):
    folder, old = published(tmp_path / "published", "bart", tokenizers), tokenizers["byte_bpe"]
    forced = {"forced_bos_token_id": old.bos_token_id, "forced_eos_token_id": old.eos_token_id}
    GenerationConfig(
        decoder_start_token_id=old.eos_token_id, bad_words_ids=[[old.mask_token_id]], **forced
    ).save_pretrained(folder)
    recipe = recipe_for(DENOISING, texts, tmp_path / "run", {"path": str(folder)})
    recipe = replace(recipe, tokenizer=replace(recipe.tokenizer, path=str(tmp_path / "own")))
    new = train_tokenizer(["big tree"] * 5, "unigram", 40)
    new.save_pretrained(tmp_path / "own")
    defaults = model_of(recipe, new).generation_config
    assert (defaults.forced_bos_token_id, defaults.forced_eos_token_id) == (
        new.bos_token_id,
        new.eos_token_id,
    )
    assert defaults.bad_words_ids == [[new.mask_token_id]]


def test_an_extended_tokenizer_is_not_that_of_another_chat_template(tokenizers, texts, tmp_path):
    """They are equal in their cores, and lie in the cache beside each other."""
    folder = published(tmp_path / "published", "llama", tokenizers)
    named = {"default": "{{ b }}", "tools": "{{ c }}"}
    for changes in (
        {"chat_template": "{{ a }}"},
        {"chat_template": "{{ b }}"},
        {"chat_template": named},
        {"chat_template": named | {"tools": "{{ d }}"}},
        {"eos_token": "<pad>"},
    ):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        for name, value in changes.items():
            setattr(tokenizer, name, value)
        tokenizer.save_pretrained(folder)
        recipe = recipe_for(CAUSAL, texts, tmp_path / "run", {"path": str(folder)}, add=["under"])
        found = tokenizer_of(recipe)
        assert {name: getattr(found, name) for name in changes} == changes


def test_learned_terms_come_from_the_training_text_and_are_kept_with_the_run(tokenizers, texts, tmp_path):
    folder = published(tmp_path / "published", "llama", tokenizers)
    recipe = recipe_for(CAUSAL, texts, tmp_path / "run", {"path": str(folder)}, add_learned=3)
    inputs = find_inputs(recipe)
    tokenizer = inputs.tokenizer.load_or_train(inputs.model, None)
    new = set(tokenizer.get_vocab()) - set(tokenizers["byte_bpe"].get_vocab())
    assert len(new) == 3
    assert new <= {f"{space}{word}" for word in WORDS for space in ("", "Ġ")}
    kept = tmp_path / "kept"
    tokenizer.save_pretrained(kept)
    again = inputs.tokenizer.load_or_train(inputs.model, kept)
    assert again.get_vocab() == tokenizer.get_vocab()


@pytest.mark.slow
def test_a_run_tells_what_the_model_knew_before_and_loads_anywhere(tokenizers, texts, tmp_path, capsys):
    folder = published(tmp_path / "published", "llama", tokenizers)
    recipe = recipe_for(CAUSAL, texts, tmp_path / "run", {"path": str(folder)}, add=["under", "big tree"])
    finished = pretrain(recipe)
    said = capsys.readouterr().err
    assert "evaluation at step 0: loss " in said
    first = next(record for record in read_log(tmp_path / "run" / LOG) if "evaluation/loss" in record)
    assert first["step"] == 0
    page = (tmp_path / "run" / "report.md").read_text()
    assert "before the first step" in page
    assert "the model that the run began with" in page
    assert "by the tokenizer before" in page
    model = AutoModelForCausalLM.from_pretrained(finished)
    tokenizer = AutoTokenizer.from_pretrained(finished)
    assert model.get_input_embeddings().num_embeddings == len(tokenizer) == len(tokenizers["byte_bpe"]) + 3
    assert "big tree" in tokenizer.tokenize("a big tree")
    assert pretrain(recipe, resume=True) == finished
