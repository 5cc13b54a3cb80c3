"""The untrained model of a recipe: it fits its tokenizer, or says why it cannot."""

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from tercet.configs.recipe import parse_recipe
from tercet.pretraining.model import MODELS, build_config, build_model, config_class_of
from tercet.pretraining.recipe import PretrainingRecipe

PRESETS = {"encoder": "encoder-tiny", "decoder": "decoder-tiny", "seq2seq": "seq2seq-tiny"}


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer of 40 words, whose padding is not id 0."""
    words = {f"w{number}": number for number in range(36)} | {
        "[PAD]": 36,
        "[BOS]": 37,
        "[EOS]": 38,
        "[UNK]": 39,
    }
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, "[UNK]")),
        pad_token="[PAD]",
        bos_token="[BOS]",
        eos_token="[EOS]",
        unk_token="[UNK]",
    )


def recipe_of(
    preset: str, kind: str, sequence_length: int = 32, seed: int = 0, **overrides
) -> PretrainingRecipe:
    """Make a recipe with a small model."""
    data = {
        "model": {"preset": preset, "overrides": {"hidden_size": 32, "num_hidden_layers": 2} | overrides},
        "corpus": {"train": "x.txt", "validation": "x.txt", "sequence_length": sequence_length},
        "objective": {"kind": kind},
        "training": {"steps": 1, "seed": seed},
        "output": "runs/x",
    }
    return parse_recipe(PretrainingRecipe, data)


@pytest.mark.parametrize("kind", MODELS)
def test_every_objective_has_its_model(kind, tokenizer):
    member = config_class_of(kind).model_type.removeprefix("tercet_")
    model = build_model(recipe_of(PRESETS[member], kind), tokenizer)
    assert type(model) is MODELS[kind]
    assert model.config.vocab_size == 40
    assert (model.config.pad_token_id, model.config.bos_token_id, model.config.eos_token_id) == (36, 37, 38)
    assert getattr(model.config, "decoder_start_token_id", None) == (36 if member == "seq2seq" else None)


def test_weights_are_a_function_of_the_seed(tokenizer):
    first, again, other = (
        build_model(recipe_of("decoder-tiny", "causal_language_modeling", seed=seed), tokenizer)
        for seed in (0, 0, 1)
    )
    for ours, same, different in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, same)
        assert ours.ndim == 1 or not torch.equal(ours, different)


def test_decoder_begins_with_the_token_of_the_same_role(tokenizer):
    recipe = recipe_of("bart-base", "denoising", num_attention_heads=4, decoder_num_attention_heads=4)
    assert build_model(recipe, tokenizer).config.decoder_start_token_id == tokenizer.eos_token_id


def test_larger_vocabulary_is_respected(tokenizer):
    recipe = recipe_of("decoder-tiny", "causal_language_modeling", vocab_size=64)
    assert build_model(recipe, tokenizer).config.vocab_size == 64


def test_vocabulary_that_does_not_fit_is_refused(tokenizer):
    recipe = recipe_of("decoder-tiny", "causal_language_modeling", vocab_size=39)
    with pytest.raises(ValueError, match=r"vocab_size is 39, but the tokenizer has 40 tokens"):
        build_model(recipe, tokenizer)


def test_sequences_over_the_positions_are_refused():
    recipe = recipe_of("encoder-tiny", "masked_language_modeling", 65, max_position_embeddings=64)
    with pytest.raises(ValueError, match=r"sequence_length is 65, but the model has 64 positions"):
        build_config(recipe)


def test_preset_of_another_member_is_refused():
    with pytest.raises(
        ValueError, match=r"preset is decoder-tiny, but .* trains a tercet_encoder: .*encoder-tiny"
    ):
        build_config(recipe_of("decoder-tiny", "masked_language_modeling"))


def test_misspelt_field_is_refused():
    with pytest.raises(ValueError, match=r"overrides.hiden_act is no field .* did you mean .*hidden_act"):
        build_config(recipe_of("encoder-tiny", "masked_language_modeling", hiden_act="gelu"))


@pytest.mark.parametrize(
    "override", [{"num_attention_heads": 5}, {"hidden_act": "sigmund"}, {"dropout": "much"}]
)
def test_impossible_value_is_refused_in_one_line(override):
    with pytest.raises(ValueError, match=f"model.overrides: .*{next(iter(override))}") as refusal:
        build_config(recipe_of("encoder-tiny", "masked_language_modeling", **override))
    assert "\n" not in str(refusal.value)
