"""The untrained model of a recipe: it fits its tokenizer, or says why it cannot."""

from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch
from transformers import GenerationConfig, PreTrainedTokenizerFast

from tercet import TercetConfig, TercetEncoderForMaskedLM, TercetRecurrentSeq2SeqForConditionalGeneration
from tercet.configs.recipe import load_recipe, parse_recipe, recipe_data
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.modeling.saved.remote_code import save_code
from tercet.pretraining.objectives.recipes import OBJECTIVES
from tercet.pretraining.recipe import PretrainingRecipe, TokenizerRecipe
from tercet.tools.plan.model_costs import build_planned_model

from ..pretraining_parts import first_model_of, model_of
from ..saved_weights import require_same
from ..word_level import word_level
from .conftest import changed, unread_recipe

PRESETS = {"encoder": "encoder-tiny", "decoder": "decoder-tiny", "seq2seq": "seq2seq-tiny"}


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer of 40 words, whose padding is not id 0."""
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "bos", "eos", "unk")}
    return word_level([*(f"w{number}" for number in range(36)), *roles.values()], **roles)


def recipe_of(
    preset: str, kind: str, sequence_length: int = 32, seed: int = 0, **overrides
) -> PretrainingRecipe:
    """Make a recipe with a small model."""
    model = {"preset": preset, "overrides": {"hidden_size": 32, "num_hidden_layers": 2} | overrides}
    return unread_recipe(kind, model, sequence_length, training={"steps": 1, "seed": seed})


@pytest.mark.parametrize(
    "recipe_class",
    [
        recipe_class
        for recipe_class in OBJECTIVES.values()
        if issubclass(recipe_class.model_class.config_class, TercetConfig)
    ],
)
def test_every_objective_has_its_model(recipe_class, tokenizer):
    kind, model_class = get_args(get_type_hints(recipe_class)["kind"])[0], recipe_class.model_class
    member = model_class.config_class.model_type.removeprefix("tercet_")
    model = model_of(recipe_of(PRESETS[member], kind), tokenizer)
    assert type(model.get_submodule(recipe_class.saved["model"])) is model_class
    assert model.config.vocab_size == 40
    assert (model.config.pad_token_id, model.config.bos_token_id, model.config.eos_token_id) == (36, 37, 38)
    assert getattr(model.config, "decoder_start_token_id", None) == (36 if member == "seq2seq" else None)


def test_weights_are_a_function_of_the_seed(tokenizer):
    first, again, other = (
        model_of(recipe_of("decoder-tiny", "causal_language_modeling", seed=seed), tokenizer)
        for seed in (0, 0, 1)
    )
    for ours, same, different in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, same)
        assert ours.ndim == 1 or not torch.equal(ours, different)


def test_decoder_begins_with_the_token_of_the_same_role(tokenizer):
    recipe = recipe_of("bart-base", "denoising", num_attention_heads=4, decoder_num_attention_heads=4)
    assert model_of(recipe, tokenizer).config.decoder_start_token_id == tokenizer.eos_token_id


def test_larger_vocabulary_is_respected_and_one_that_does_not_fit_refused(tokenizer):
    larger, smaller = (
        recipe_of("decoder-tiny", "causal_language_modeling", vocab_size=size) for size in (64, 39)
    )
    assert model_of(larger, tokenizer).config.vocab_size == 64
    with pytest.raises(ValueError, match=r"vocab_size is 39, but the tokenizer's ids need 40"):
        model_of(smaller, tokenizer)


def test_a_vocabulary_has_room_for_the_last_id_where_others_are_left_out(tmp_path, tokenizer):
    words = {name: 3 * idx for name, idx in tokenizer.get_vocab().items()}
    gappy = word_level(words, **tokenizer.special_tokens_map)
    gappy.save_pretrained(tmp_path)
    recipe = recipe_of("decoder-tiny", "causal_language_modeling")
    assert model_of(recipe, gappy).config.vocab_size == 3 * 39 + 1 > len(gappy)
    planned = replace(recipe, tokenizer=TokenizerRecipe(path=str(tmp_path)))
    assert build_planned_model(planned).config.vocab_size == 3 * 39 + 1
    recipe = recipe_of("decoder-tiny", "causal_language_modeling", vocab_size=100)
    with pytest.raises(ValueError, match=r"vocab_size is 100, but the tokenizer's ids need 118"):
        model_of(recipe, gappy)


def test_the_preset_chooses_the_kind_of_translator(tokenizer):
    model = model_of(recipe_of("recurrent-mini", "translation"), tokenizer)
    assert type(model) is TercetRecurrentSeq2SeqForConditionalGeneration
    assert (model.config.vocab_size, model.config.decoder_start_token_id) == (40, 36)


MASKED, CAUSAL = "masked_language_modeling", "causal_language_modeling"
REFUSED = [
    ("recurrent-mini", "denoising", {}, "a tercet_recurrent_seq2seq, but .* trains a tercet_seq2seq: "),
    ("decoder-tiny", "translation", {}, r"a tercet_decoder, but .* trains a .* or a .*recurrent-mini"),
    ("decoder-tiny", MASKED, {}, r"decoder-tiny is .* a tercet_encoder: .*encoder-tiny"),
    ("encoder-tiny", "character_language_modeling", {}, "trains a tercet_character: choose one of"),
    ("encoder-tiny", MASKED, {"max_position_embeddings": 31}, "is 32, but the model has 31 positions"),
    ("encoder-tiny", MASKED, {"hiden_act": "gelu"}, "hiden_act is not a field .* did you mean .*hidden_act"),
    (None, MASKED, {}, "model.preset and model.path are both empty: name a preset"),
    ("encoder-tiny", MASKED, {"num_attention_heads": 5}, r"model\.overrides.*num_attention_heads"),
    ("encoder-tiny", MASKED, {"hidden_act": "sigmund"}, r"model\.overrides.*hidden_act"),
    ("encoder-tiny", MASKED, {"dropout": "much"}, r"model\.overrides.*dropout"),
    ("pythia-70m", CAUSAL, {"hidden_size": 512, "rope_parameters": {"rope_type": "yarn"}},
     r"give exactly \['factor'\] .*another rope_type \(.*yarn\)$"),
    ("gpt2", CAUSAL, {"hidden_size": 768, "rope_parameters": {"rope_theta": 1e6}},
     r"^model\.overrides: rope_parameters are {'rope_theta': 1000000\.0}, but .* is 'learned': leave"),
]  # fmt: skip
"""A preset, an objective, what is overridden, and what is said."""


@pytest.mark.parametrize(("preset", "kind", "overrides", "message"), REFUSED)
def test_a_new_model_that_cannot_be_is_refused_in_one_line(preset, kind, overrides, message):
    with pytest.raises(ValueError, match=message) as refusal:
        first_model_of(recipe_of(preset, kind, **overrides))
    assert "\n" not in str(refusal.value)


def test_the_command_line_overrides_a_key_of_rotary_positions():
    base = "model.overrides.rope_parameters.rope_theta=1e6"
    recipe = recipe_of("pythia-70m", "causal_language_modeling", hidden_size=512)
    changed_base = load_recipe(PretrainingRecipe, recipe_data(recipe), [base])
    described = {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25}
    assert first_model_of(changed_base).config.rope_parameters == described


def continuing(folder, kind: str, **model) -> PretrainingRecipe:
    data = recipe_data(recipe_of("encoder-tiny", kind))
    del data["tokenizer"]
    return parse_recipe(PretrainingRecipe, data | {"model": {"path": str(folder)} | model})


def saved(folder, preset: str, kind: str, tokenizer) -> Path:
    model_of(recipe_of(preset, kind, seed=3), tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("preset", "kind", "model_class"),
    [
        ("encoder-tiny", MASKED, TercetEncoderForMaskedLM),
        ("recurrent-mini", "translation", TercetRecurrentSeq2SeqForConditionalGeneration),
    ],
)
def test_model_goes_on_learning_with_its_weights_and_its_tokenizer(
    preset, kind, model_class, tmp_path, tokenizer
):
    recipe = continuing(saved(tmp_path, preset, kind, tokenizer), kind)
    before, after = model_class.from_pretrained(tmp_path), model_of(recipe, tokenizer)
    assert recipe.tokenizer.path == str(tmp_path)
    require_same(after.state_dict(), before.state_dict())


def test_head_without_weights_is_drawn_and_told_of(tmp_path, tokenizer):
    saved(tmp_path, "encoder-tiny", "masked_language_modeling", tokenizer)
    recipe = continuing(tmp_path, "masked_language_modeling_with_next_sentence")
    with pytest.warns(UserWarning, match=r"has no weights for .*next_sentence_head.*: they are initialized"):
        model = model_of(recipe, tokenizer)
    before = TercetEncoderForMaskedLM.from_pretrained(tmp_path)
    require_same(model.model.state_dict(), before.model.state_dict())


def test_model_of_another_member_is_refused(tmp_path, tokenizer):
    saved(tmp_path, "decoder-tiny", "causal_language_modeling", tokenizer)
    remedy = (
        "is a tercet_decoder, but .* trains a tercet_encoder: run `tercet pretrain adapt-decoder model.path="
    )
    with pytest.raises(ValueError, match=remedy):
        first_model_of(continuing(tmp_path, "masked_language_modeling"))


def test_override_that_changes_shapes_of_learned_weights_is_refused(tmp_path, tokenizer):
    saved(tmp_path, "encoder-tiny", "masked_language_modeling", tokenizer)
    recipe = continuing(tmp_path, "masked_language_modeling", overrides={"intermediate_size": 48})
    with pytest.raises(ValueError, match=r"model.overrides do not fit its weights: .*would change"):
        model_of(recipe, tokenizer)


def test_a_model_that_goes_on_learning_keeps_how_it_writes(tokenizer, tmp_path: Path) -> None:
    """All tokens that end a text, too, where the tokenizer's is one of them."""
    recipe = recipe_of("decoder-tiny", "causal_language_modeling")
    first = model_of(recipe, tokenizer)
    first.config.eos_token_id = ends = [7, tokenizer.eos_token_id]
    first.generation_config = GenerationConfig(
        eos_token_id=[*ends, 9],
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        repetition_penalty=1.05,
    )
    first.save_pretrained(tmp_path)
    going_on = changed(recipe, "model", preset=None, path=str(tmp_path), overrides={})
    model = model_of(going_on, tokenizer)
    assert model.config.eos_token_id == ends
    assert model.generation_config.eos_token_id == [*ends, 9]
    assert model.generation_config.repetition_penalty == 1.05


def test_a_model_does_not_name_the_code_beside_what_it_began_with(tmp_path, tokenizer):
    """Where `training.save_code=false` writes none, none would be there (Megatron-Bridge 3924)."""
    recipe = recipe_of("decoder-tiny", "causal_language_modeling")
    model_of(recipe, tokenizer).save_pretrained(tmp_path)
    save_code(tmp_path)
    begun = changed(recipe, "model", preset=None, path=str(tmp_path), overrides={})
    assert Checkpoint.open(str(tmp_path)).transformer().config.auto_map
    assert model_of(begun, tokenizer).config.auto_map == {}
