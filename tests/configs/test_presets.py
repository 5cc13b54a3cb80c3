"""The presets: what they say about themselves, how the modern ones relate, how exact the classics are."""

import re
from dataclasses import fields
from importlib.resources import files

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoConfig

from tercet import modeling
from tercet.configs.recipe import load_preset, preset_names

MEMBERS = ("encoder", "decoder", "seq2seq")
SIZES = ("tiny", "mini", "small", "base")
LARGE = {
    "decoder-350m": (24, 1024, 16),
    "decoder-1.3b": (24, 2048, 16),
    "decoder-2.7b": (32, 2560, 32),
    "decoder-7b": (32, 4096, 32),
}
"""Layers, width and heads of GPT-3's models (Brown et al., 2020, table 2.1), but 16 heads at 1.3 billion: the
24 of the table, of 128 channels each, are not 2048 channels."""
SIZE_FIELDS = {
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
}
BART_BASE = {
    "d_model": 768,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 12,
    "decoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
}
MARIAN_BASE = {
    "vocab_size": 37_000,
    "pad_token_id": 0,
    "d_model": 512,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
}
SEQ2SEQ = "TercetSeq2SeqForConditionalGeneration"
SHARED_FIELDS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "layer_types",
    "sliding_window",
    "type_vocab_size",
    "hidden_act",
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "initializer_range",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
)
CLASSICS = [
    ("bert-base", "TercetEncoderForPreTraining", "Bert", "ForPreTraining", {}, 110_106_428),
    ("distilbert-base", "TercetEncoderForMaskedLM", "DistilBert", "ForMaskedLM", {}, 66_985_530),
    ("modernbert-base", "TercetEncoderForMaskedLM", "ModernBert", "ForMaskedLM", {}, 149_655_232),
    ("gpt2", "TercetDecoderForCausalLM", "GPT2", "LMHeadModel", {}, 124_439_808),
    ("bart-base", SEQ2SEQ, "Bart", "ForConditionalGeneration", BART_BASE, 139_420_416),
    ("vaswani-base", SEQ2SEQ, "Marian", "MTModel", MARIAN_BASE, 63_082_496),
]


def num_parameters(model_class: type[nn.Module], config) -> int:
    """Count the trainable parameters of a model that holds no memory, tied ones once."""
    with torch.device("meta"):
        return sum(p.numel() for p in model_class(config).parameters() if p.requires_grad)


def config_of(preset: str):
    return AutoConfig.for_model(**load_preset(preset))


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_states_its_parameters(name):
    text = (files("tercet.configs") / "model" / f"{name}.yaml").read_text(encoding="utf-8")
    stated = re.match(r"# .+: ([\d,]+) parameters \((\w+)\)\.\n", text)
    assert stated, text.splitlines()[0]
    model_class = getattr(modeling, stated[2])
    assert num_parameters(model_class, config_of(name)) == int(stated[1].replace(",", ""))


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_sets_fields_that_exist(name):
    preset = load_preset(name)
    config_class = type(AutoConfig.for_model(preset.pop("model_type")))
    assert set(preset) <= {field.name for field in fields(config_class)}


def test_the_modern_presets_are_the_defaults_in_four_sizes():
    for member in MEMBERS:
        for size in SIZES:
            preset = load_preset(f"{member}-{size}")
            assert preset.pop("model_type") == f"tercet_{member}"
            assert set(preset) == SIZE_FIELDS


@pytest.mark.parametrize("size", SIZES)
def test_members_of_a_size_are_equal_but_for_what_they_are(size):
    encoder, *others = (load_preset(f"{member}-{size}") for member in MEMBERS)
    assert all(encoder | {"model_type": other["model_type"]} == other for other in others)


@pytest.mark.parametrize("name", LARGE)
def test_the_large_decoders_have_the_sizes_of_gpt_3(name):
    preset = load_preset(name)
    assert set(preset) == SIZE_FIELDS | {"model_type"}
    sizes = tuple(preset[field] for field in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    assert sizes == LARGE[name]
    assert (preset["vocab_size"], preset["max_position_embeddings"]) == (50_257, 2048)


@pytest.mark.parametrize("name", [*(f"encoder-{size}" for size in SIZES), *LARGE])
def test_a_gated_feed_forward_network_is_eight_thirds_wide(name):
    # Three matrices of 8/3 cost what two of four times the width do (Shazeer, 2020, section 2).
    preset = load_preset(name)
    assert 0 <= preset["intermediate_size"] - preset["hidden_size"] * 8 / 3 < 64
    assert preset["intermediate_size"] % 64 == 0


@pytest.mark.parametrize(("preset", "ours", "stock", "head", "values", "published"), CLASSICS)
def test_a_classic_has_the_parameters_of_the_stock_model(preset, ours, stock, head, values, published):
    stock_class, stock_config = getattr(transformers, stock + head), getattr(transformers, f"{stock}Config")
    assert num_parameters(getattr(modeling, ours), config_of(preset)) == published
    assert num_parameters(stock_class, stock_config(**values)) == published


@pytest.mark.parametrize(("preset", "stock", "values"), [(c[0], c[2], c[4]) for c in CLASSICS[:-1]])
def test_a_classic_has_the_values_of_the_stock_configuration(preset, stock, values):
    config, stock_config = config_of(preset), getattr(transformers, f"{stock}Config")(**values)
    for name in SHARED_FIELDS:
        if hasattr(stock_config, name):
            assert getattr(config, name, None) == getattr(stock_config, name), name


def test_the_first_transformer_has_the_parameters_of_its_paper():
    # The paper rounds both the parameters and the vocabulary (table 3, section 5.1), hence the tolerance.
    count = num_parameters(getattr(modeling, SEQ2SEQ), config_of("vaswani-base"))
    assert count == pytest.approx(65e6, rel=0.05)
