"""Positions against their formulas.

`rope_parameters`, transformers' name for all that describes rotary positions, is what our fields say.
"""

import copy
import math

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tercet.modeling import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetSeq2SeqConfig,
)
from tercet.modeling.layers.positions import POSITIONS, RopeConfig, frequencies_of, rope_parameters_of, rotate

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


@pytest.mark.parametrize("kind", ["sinusoidal", "sinusoidal_split"])
@pytest.mark.parametrize("shift", [1, 5, 17])
def test_a_shift_is_one_rotation_whatever_the_position(shift, kind):
    """PE(p + k) = PE(p) M_k, which lets attention read distances (Vaswani et al., 2017, section 3.5)."""
    table = positions_of(kind).embed(torch.arange(T)[None])[0].double()
    matrix = torch.zeros(C, C, dtype=torch.float64)
    for i in range(C // 2):
        sine, cosine = (2 * i, 2 * i + 1) if kind == "sinusoidal" else (i, C // 2 + i)
        angle = shift / 10_000 ** (2 * i / C)
        matrix[sine, sine] = matrix[cosine, cosine] = math.cos(angle)
        matrix[cosine, sine], matrix[sine, cosine] = math.sin(angle), -math.sin(angle)
    assert_close(matrix @ matrix.T, torch.eye(C, dtype=torch.float64))
    assert_close(table[:-shift] @ matrix, table[shift:], rtol=0, atol=1e-5)


def test_learned_positions_skip_their_offset():
    positions = positions_of("learned", position_offset=2)
    assert positions.embed_positions.weight.shape == (T + 2, C)
    assert torch.equal(positions.embed(torch.tensor([[0]]))[0, 0], positions.embed_positions.weight[2])


def test_rotated_scores_depend_on_the_distance_only():
    positions = positions_of("rotary")
    query, key = torch.randn(2, 1, 2, 1, C // 2)

    def score(at: int, of: int) -> torch.Tensor:
        turned = [rotate(x, positions.rotation(torch.tensor([[t]]))) for x, t in ((query, at), (key, of))]
        return (turned[0] * turned[1]).sum(-1)

    assert_close(score(3, 1), score(30, 28), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(score(3, 1), score(3, 2), atol=1e-3)


@pytest.mark.parametrize(
    "fields",
    [{}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "partial_rotary_factor": 0.5}],
    ids=["plain", "stretched and partial"],
)
def test_sliding_layers_may_have_their_own_wavelengths(fields):
    ids = torch.arange(T)[None]
    near, far = (positions_of("rotary", rope_theta=base, **fields) for base in (100.0, 10_000.0))
    both = positions_of("rotary", rope_theta=10_000.0, local_rope_theta=100.0, **fields)
    assert_close(both.rotation(ids, "full_attention"), far.rotation(ids))
    assert_close(both.rotation(ids, "sliding_attention"), near.rotation(ids))
    assert_close(far.rotation(ids, "sliding_attention"), far.rotation(ids))


def test_rotation_keeps_lengths_and_types():
    x = torch.randn(1, 2, T, C // 2)
    turned = rotate(x, positions_of("rotary").rotation(torch.arange(T)[None]))
    assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert (
        rotate(x.bfloat16(), positions_of("rotary").rotation(torch.arange(T)[None])).dtype == torch.bfloat16
    )


def test_what_is_turned_in_part_is_a_smaller_head_turned_and_the_rest():
    x = torch.randn(1, 2, T, C // 2)
    ids = torch.arange(T)[None]
    turned = rotate(x, positions_of("rotary", partial_rotary_factor=0.5).rotation(ids))
    small = positions_of("rotary", head_dim=C // 4).rotation(ids)
    assert_close(turned, torch.cat((rotate(x[..., : C // 4], small), x[..., C // 4 :]), dim=-1))
    assert not torch.allclose(turned[..., : C // 4], x[..., : C // 4], atol=1e-2)


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
    parameters = rope_parameters_of(described, 128) | {"rope_theta": 5e5}
    stretched, found = RopeConfig(parameters, 64, 128).frequencies(torch.arange(last + 1)[None])
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
def test_both_ways_to_say_it_are_one(name, tmp_path):
    described = dict(KINDS[name])
    config = TercetDecoderConfig(rope_parameters=described, partial_rotary_factor=0.5)
    assert config.rope_theta == 500.0
    numbers = {key: value for key, value in described.items() if key != "rope_theta"}
    assert config.rope_scaling == (None if name == "default" else numbers)
    ours = TercetDecoderConfig(rope_theta=500.0, rope_scaling=config.rope_scaling, partial_rotary_factor=0.5)
    assert config.rope_parameters == ours.rope_parameters
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert loaded.rope_parameters == config.rope_parameters
    assert "rope_parameters" not in config.to_dict()  # a file says everything once


def test_what_is_changed_later_takes_effect():
    config = TercetDecoderConfig(**SIZES)
    config.rope_theta = 7.0
    assert config.rope_parameters is not None
    assert config.rope_parameters["rope_theta"] == 7.0
    config.rope_parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": 9.0}
    assert (config.rope_theta, config.rope_scaling) == (9.0, {"rope_type": "linear", "factor": 2.0})
    config.rope_parameters.update(factor=5.0)
    model = TercetDecoderForCausalLM(copy.deepcopy(config))
    assert (
        model.model.embeddings.positions.rotary_emb.configs["full_attention"].rope_parameters["factor"] == 5.0
    )
    assert AutoConfig.for_model(**config.to_dict()).rope_scaling["factor"] == 5.0


def test_types_of_layers_may_have_their_own_base():
    kinds = {"full_attention": {"rope_theta": 500.0}, "sliding_attention": {"rope_theta": 50.0}}
    fields = {"layer_types": [*kinds], "sliding_window": 4, "num_hidden_layers": 2}
    config = TercetDecoderConfig(**SIZES | fields, rope_parameters=kinds)
    assert (config.rope_theta, config.local_rope_theta) == (500.0, 50.0)
    assert {kind: one["rope_theta"] for kind, one in config.rope_parameters.items()} == {
        "full_attention": 500.0,
        "sliding_attention": 50.0,
    }


def test_both_stacks_of_seq2seq_are_scaled():
    config = TercetSeq2SeqConfig(rope_parameters=dict(KINDS["yarn"]))
    for part in (config.encoder_config(), config.decoder_config()):
        assert part.rope_parameters == config.rope_parameters


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rope_theta": 5.0, "rope_parameters": {"rope_theta": 6.0}}, "rope_theta is 5.0, but by rope_"),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_parameters": {"rope_theta": 6.0}},
            "rope_scaling is .* it is None: give one of the two",
        ),
        ({"position_embedding_type": "learned", "rope_parameters": {"rope_theta": 6.0}}, "choose 'rotary'"),
        ({"rope_parameters": {"everywhere": {"rope_theta": 6.0}}}, "one dictionary for all layers"),
        ({"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}, "rope_type 'longrope': choose one"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "beta_fast": 3}}, "give exactly"),
        (
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 2.0},
                    "sliding_attention": {"rope_type": "default"},
                }
            },
            "must have the same scaling",
        ),
    ],
)
def test_contradictions_are_refused(fields, words):
    with pytest.raises(Exception, match="(?s)" + words):
        TercetDecoderConfig(**fields)


def test_a_field_that_is_not_ours_is_told(caplog, monkeypatch):
    told = []
    monkeypatch.setattr("tercet.modeling.configuration_neural.logger.warning_once", told.append)
    TercetDecoderConfig(**SIZES, rope_thetta=5.0)
    assert told == [
        "TercetDecoderConfig has no field 'rope_thetta': it is kept, but changes nothing (did you mean "
        "'rope_theta'?)"
    ]
    TercetDecoderConfig(**TercetDecoderConfig(num_labels=3).to_dict() | {"torch_dtype": "float32"})
    assert len(told) == 1


@pytest.mark.parametrize("kind", ["llama3", "yarn"])
def test_the_length_of_the_first_training_stays_when_more_positions_are_allowed(kind, tmp_path):
    unsaid = ("rope_theta", "original_max_position_embeddings")
    scaling = {key: value for key, value in KINDS[kind].items() if key not in unsaid}
    fresh, given_later = TercetDecoderConfig(**SIZES, rope_scaling=scaling), TercetDecoderConfig(**SIZES)
    given_later.rope_scaling = scaling
    fresh.save_pretrained(tmp_path)
    for config in (fresh, given_later, TercetDecoderConfig.from_pretrained(tmp_path)):
        assert config.rope_parameters == TercetDecoderConfig.from_pretrained(tmp_path).rope_parameters
        config.max_position_embeddings = 64
        model = TercetDecoderForCausalLM(config)
        assert (model.config.rope_scaling or {})["original_max_position_embeddings"] == 16
