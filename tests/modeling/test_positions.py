"""Positions against their formulas; rotary ones against transformers' description of them."""

import copy
import json
import math

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoConfig, GPTNeoXConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tercet.modeling import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetSeq2SeqConfig,
)
from tercet.modeling.attention.patterns import PATTERNS
from tercet.modeling.layers.positions import POSITIONS, RopeConfig, frequencies_of

T, C = 40, 16


def positions_of(kind: str, **fields):
    config = TercetEncoderConfig(
        hidden_size=C,
        num_attention_heads=2,
        max_position_embeddings=T,
        position_embedding_type=kind,
        **fields,
    )
    return POSITIONS[kind](config)


def test_sinusoids_are_the_paper_formula():
    table = positions_of("sinusoidal").embed(torch.arange(T)[None])[0]
    for t in (0, 1, 7, T - 1):
        for i in range(C // 2):
            angle = t / 10_000 ** (2 * i / C)
            assert table[t, 2 * i] == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[t, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-5)


def test_both_layouts_hold_the_same_waves():
    ids = torch.arange(T)[None]
    interleaved, split = (positions_of(kind).embed(ids) for kind in ("sinusoidal", "sinusoidal_split"))
    assert torch.equal(split, torch.cat((interleaved[..., 0::2], interleaved[..., 1::2]), dim=-1))


@pytest.mark.parametrize(
    "fields",
    [{}, {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}],
    ids=["plain", "stretched and partial"],
)
def test_sliding_layers_may_have_their_own_wavelengths(fields):
    ids = torch.arange(T)[None]
    kinds = {"full_attention": fields, "sliding_attention": fields | {"rope_theta": 100.0}}
    far, near, both = (positions_of("rotary", rope_parameters=each) for each in (*kinds.values(), kinds))
    assert_close(both.rotation(ids, "full_attention"), far.rotation(ids))
    assert_close(both.rotation(ids, "sliding_attention"), near.rotation(ids))
    assert_close(far.rotation(ids, "sliding_attention"), far.rotation(ids))


LONGER = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 32},
    "yarn of DeepSeek": {
        "factor": 40.0,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "mscale": 1.0,
        "mscale_all_dim": 0.5,
        "truncate": False,
    },
}


@pytest.mark.parametrize("name", LONGER)
@pytest.mark.parametrize("last", [9, 200])
def test_stretched_wavelengths_are_those_of_transformers(name, last):
    described = LONGER[name] | {"rope_type": name.split()[0]}
    config = LlamaConfig(
        head_dim=64, max_position_embeddings=128, rope_parameters=described | {"rope_theta": 5e5}
    )
    expected, factor = ROPE_INIT_FUNCTIONS[described["rope_type"]](config, seq_len=last + 1)
    parameters = TercetDecoderConfig(
        head_dim=64, max_position_embeddings=128, rope_parameters=described | {"rope_theta": 5e5}
    ).rope_parameters
    stretched, found = RopeConfig(parameters or {}, 64, 128).frequencies(torch.arange(last + 1)[None])
    assert_close(stretched, expected, rtol=1e-5, atol=0)
    assert found == pytest.approx(factor)
    plain = frequencies_of(64, 5e5, torch.device("cpu"))
    assert torch.allclose(stretched, plain, rtol=2e-7, atol=0) == (name == "dynamic" and last == 9)


KINDS = {
    "default": {"rope_type": "default", "rope_theta": 500.0},
    "linear": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8,
        "rope_theta": 500.0,
    },
    "dynamic": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 500.0},
    "yarn": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "rope_theta": 500.0,
    },
}


SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 37,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
}


@torch.no_grad()
def test_dynamic_wavelengths_do_not_remember_longer_batches():
    config = TercetDecoderConfig(**SIZES, rope_parameters=dict(KINDS["dynamic"]))
    model = TercetDecoderForCausalLM(config).eval()
    ids = torch.randint(3, 61, (1, 24))
    before = model(ids[:, :18]).logits
    model(ids)
    assert torch.equal(model(ids[:, :18]).logits, before)


@pytest.mark.parametrize("name", KINDS)
def test_a_file_says_what_a_stock_model_says(name, tmp_path):
    described = KINDS[name] | {"partial_rotary_factor": 0.5}
    config = TercetDecoderConfig(**SIZES, rope_parameters=described)
    config.save_pretrained(tmp_path)
    stock = GPTNeoXConfig(max_position_embeddings=16, rope_parameters=dict(described))
    told = json.loads((tmp_path / "config.json").read_text())
    assert told["rope_parameters"] == config.rope_parameters == stock.to_dict()["rope_parameters"]
    assert not {"rope_theta", "rope_scaling", "partial_rotary_factor"} & {*told}
    assert AutoConfig.from_pretrained(tmp_path).rope_parameters == config.rope_parameters


def test_what_is_left_out_is_filled_in():
    filled = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 1.0}
    assert TercetDecoderConfig().rope_parameters == filled
    given = {"type": "linear", "factor": 2}  # as old stock configurations say it
    assert TercetDecoderConfig(rope_parameters=given).rope_parameters == filled | {
        "rope_type": "linear",
        "factor": 2,
    }
    assert given == {"type": "linear", "factor": 2}
    assert "rope_parameters" not in TercetDecoderConfig(position_embedding_type="alibi").to_dict()


def test_what_is_changed_later_takes_effect():
    config = TercetDecoderConfig(**SIZES)
    config.rope_parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": 9.0}
    config.rope_parameters.update(factor=5.0)
    model = TercetDecoderForCausalLM(copy.deepcopy(config))
    built = model.model.embeddings.positions.rotary_emb.configs["full_attention"].rope_parameters
    assert (built["factor"], built["rope_theta"]) == (5.0, 9.0)
    again = AutoConfig.for_model(**config.to_dict())
    assert again.rope_parameters == model.config.rope_parameters
    again.rope_parameters["factor"] = 0
    with pytest.raises(ValueError, match=r"rope_parameters\.factor is 0: choose"):
        TercetDecoderForCausalLM(again)


def test_layers_that_are_neither_full_nor_sliding_turn_as_full_ones_do():
    kinds = {"full_attention": {"rope_theta": 500.0}, "sliding_attention": {"rope_theta": 50.0}}
    config = TercetDecoderConfig(**SIZES, rope_parameters=kinds)
    bases = {kind: config.rotation_of(kind)["rope_theta"] for kind in PATTERNS}
    assert bases == dict.fromkeys(PATTERNS, 500.0) | {"sliding_attention": 50.0}


def test_both_stacks_of_seq2seq_are_scaled():
    config = TercetSeq2SeqConfig(rope_parameters=dict(KINDS["yarn"]))
    assert config.rope_parameters is not None
    config.rope_parameters["factor"] = 7.0
    for part in (config.encoder_config(), config.decoder_config()):
        assert part.rope_parameters == config.rope_parameters


def test_a_field_that_is_not_ours_is_told(caplog, monkeypatch):
    told = []
    monkeypatch.setattr("tercet.modeling.configuration_neural.logger.warning_once", told.append)
    TercetDecoderConfig(**SIZES, rope_parametres={})
    assert told == [
        "TercetDecoderConfig has no field 'rope_parametres': it is kept, but changes nothing (did you mean "
        "'rope_parameters'?)"
    ]
    TercetDecoderConfig(**TercetDecoderConfig(num_labels=3).to_dict() | {"torch_dtype": "float32"})
    assert len(told) == 1


@pytest.mark.parametrize("kind", ["llama3", "yarn"])
def test_the_length_of_the_first_training_stays_when_more_positions_are_allowed(kind, tmp_path):
    unsaid = "original_max_position_embeddings"
    described = {key: value for key, value in KINDS[kind].items() if key != unsaid}
    fresh, given_later = TercetDecoderConfig(**SIZES, rope_parameters=described), TercetDecoderConfig(**SIZES)
    given_later.rope_parameters = dict(described)
    TercetDecoderForCausalLM(given_later)  # as with transformers, it is completed when it is used
    fresh.save_pretrained(tmp_path)
    for config in (fresh, given_later, TercetDecoderConfig.from_pretrained(tmp_path)):
        assert config.rope_parameters == TercetDecoderConfig.from_pretrained(tmp_path).rope_parameters
        config.max_position_embeddings = 64
        model = TercetDecoderForCausalLM(config)
        assert (model.config.rope_parameters or {})[unsaid] == 16
