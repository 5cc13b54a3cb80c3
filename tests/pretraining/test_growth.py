"""A recipe whose model grows from a smaller one begins with equal logits, or is refused in one line."""

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast

from tercet.configs.recipe import load_preset
from tercet.conversion.growth import require_growth
from tercet.modeling import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
    TercetSeq2SeqConfig,
)
from tercet.pretraining.model import build_config, build_model
from tercet.pretraining.output import run_folder
from tercet.pretraining.recipe import PretrainingRecipe

from ..word_level import ROLES, SIGNS, word_level
from .conftest import unread_recipe

SMALL = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 1, "max_position_embeddings": 64}
IDS = torch.arange(5, 17)[None]


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer of 45 words, fewer than the model has rows."""
    return word_level([*SIGNS, *(f"w{number}" for number in range(40))], **ROLES)


@pytest.fixture
def smaller(tmp_path: Path, tokenizer) -> Path:
    """Save a small decoder with its tokenizer."""
    torch.manual_seed(3)
    model = TercetDecoderForCausalLM(TercetDecoderConfig(**SMALL))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    model.save_pretrained(tmp_path / "smaller")
    tokenizer.save_pretrained(tmp_path / "smaller")
    return tmp_path / "smaller"


def recipe_of(smaller: Path, kind: str = "causal_language_modeling", **model) -> PretrainingRecipe:
    """Make a recipe of a tiny preset that grows from a smaller model."""
    return unread_recipe(kind, {"preset": "decoder-tiny", "grow_from": str(smaller)} | model)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_recipe_begins_with_the_function_of_a_smaller_model(smaller, tokenizer, noise):
    recipe = recipe_of(smaller, grow_noise=noise)
    assert recipe.tokenizer.path == str(smaller)
    model, source = build_model(recipe, tokenizer).eval(), TercetDecoderForCausalLM.from_pretrained(smaller)
    assert (model.config.hidden_size, model.config.num_hidden_layers) == (128, 4)
    assert model.config.vocab_size == 48
    assert_close(model(IDS).logits, source.eval()(IDS).logits, atol=1e-5, rtol=1e-5)


def test_noise_is_a_function_of_the_seed(smaller, tokenizer):
    first, again = (build_model(recipe_of(smaller, grow_noise=0.1), tokenizer) for _ in range(2))
    plain = build_model(recipe_of(smaller), tokenizer)
    name = "model.layers.0.feed_forward.up_proj.weight"
    assert torch.equal(first.get_parameter(name), again.get_parameter(name))
    assert not torch.equal(first.get_parameter(name), plain.get_parameter(name))


def test_a_head_that_the_smaller_model_lacks_is_told_of(tmp_path, tokenizer):
    TercetEncoderForMaskedLM(TercetEncoderConfig(**SMALL)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    kind = "masked_language_modeling_with_next_sentence"
    with pytest.warns(UserWarning, match="has no weights for next_sentence_head"):
        build_model(recipe_of(tmp_path, kind, preset="encoder-tiny"), tokenizer)


@pytest.mark.parametrize(
    ("config_class", "member"),
    [(TercetEncoderConfig, "encoder"), (TercetDecoderConfig, "decoder"), (TercetSeq2SeqConfig, "seq2seq")],
)
@pytest.mark.parametrize("size", ["small", "base"])
def test_shipped_presets_grow_from_mini(config_class, member, size):
    small, large = (load_preset(f"{member}-{name}") | {"vocab_size": 8192} for name in ("mini", size))
    for preset in (small, large):
        del preset["model_type"]
    require_growth(config_class(**large), config_class(**small))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            {"overrides": {"hidden_size": 80, "num_attention_heads": 2}},
            "hidden_size is 80.*no multiple of 32",
        ),
        ({"overrides": {"norm_type": "layer_norm"}}, "norm_type is 'layer_norm', but 'rms_norm'.*overrides"),
        ({"overrides": {"vocab_size": 100}}, "vocab_size is 100, but 48 in the smaller model"),
        ({"path": "runs/y"}, "model.grow_from is .* and model.path is runs/y: name one"),
        ({"path": "runs/y", "preset": None}, "model.grow_from is .* and model.path is runs/y: name one"),
        ({"grow_from": None, "grow_noise": 0.1}, r"model.grow_noise is 0\.1, but nothing grows"),
    ],
)
def test_what_cannot_grow_is_refused_before_any_text_is_read(smaller, model, message):
    with pytest.raises(ValueError, match=message):
        build_config(recipe_of(smaller, **model))


def test_a_model_that_cannot_be_imported_does_not_grow(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(ValueError, match=r"'mamba' cannot be imported: supported architectures are"):
        build_config(recipe_of(tmp_path))


def test_the_smaller_model_is_never_overwritten(smaller):
    assert "model.grow_from" in run_folder(recipe_of(smaller)).models
