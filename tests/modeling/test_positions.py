"""Positions against their formulas."""

import math

import pytest
import torch
from torch.testing import assert_close
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tercet.modeling import TercetEncoderConfig
from tercet.modeling.layers.positions import POSITIONS, build_rope_scaling, frequencies_of, rotate

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
    scaling = build_rope_scaling(described, 128)
    stretched = scaling.stretch(5e5, 64, torch.arange(last + 1)[None])
    assert_close(stretched, expected, rtol=1e-5, atol=0)
    assert scaling.attention_factor == pytest.approx(factor)
    plain = frequencies_of(64, 5e5, torch.device("cpu"))
    assert torch.equal(stretched, plain) == (name == "dynamic" and last == 9)
