"""Gated attention and normalized heads: every kernel and layout computes what a loop over pairs does."""

import math

import pytest
import torch
from torch.testing import assert_close

from tercet.modeling import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.modeling.attention.multi_head import CrossAttention, SelfAttention
from tercet.modeling.attention.packing import PackedSequences
from tercet.modeling.attention.scores import GATES, ElementwiseGate
from tercet.modeling.generation import prepacked_weights

B, T, S, C, H, G, D = 2, 5, 7, 24, 4, 2, 6
EPS = 1e-6
KINDS = [(gate, has_norms) for gate in GATES for has_norms in (False, True)]


def build(attention_class, gate: str, has_norms: bool, kernel: str, **arguments):
    """Build attention in double precision, no weight of which is 0 or 1."""
    torch.manual_seed(0)
    config = TercetDecoderConfig(
        hidden_size=C, num_attention_heads=H, num_key_value_heads=G, head_dim=D, norm_eps=EPS,
        attention_bias=True, attention_gate=gate, use_qk_norm=has_norms, attn_implementation=kernel,
    )  # fmt: skip
    attention = attention_class(config, 0, **arguments).double()
    for parameter in attention.parameters():
        parameter.data = 0.5 * torch.randn_like(parameter) + (parameter.dim() == 1)
    return attention


def defined(attention, x, source, gate: str, has_norms: bool):
    """Attend pair by pair: the norm of Henry et al., 2020, and the gate of Qiu et al., 2025, section 2.2."""
    weights = dict(attention.named_parameters())

    def affine(name, state):
        return weights[f"{name}.weight"] @ state + weights[f"{name}.bias"]

    def normed(name, head):
        if not has_norms:
            return head
        return head / (head.square().mean() + EPS).sqrt() * weights[f"{name}.weight"]

    rows = []
    for b in range(len(x)):
        for t in range(x.shape[1]):
            heads = []
            for h in range(H):
                own, shared = slice(h * D, h * D + D), slice(h * G // H * D, h * G // H * D + D)
                query = normed("q_norm", affine("q_proj", x[b, t])[own])
                keys = [normed("k_norm", affine("k_proj", state)[shared]) for state in source[b]]
                scores = torch.stack([query @ key / math.sqrt(D) for key in keys])
                values = torch.stack([affine("v_proj", state)[shared] for state in source[b]])
                head = scores.softmax(0) @ values
                if gate == "headwise":
                    head = head / (1 + torch.exp(-affine("gate.g_proj", x[b, t])[h]))
                if gate == "elementwise":
                    head = head / (1 + torch.exp(-affine("gate.g_proj", x[b, t])[own]))
                heads.append(head)
            rows.append(affine("o_proj", torch.cat(heads)))
    return torch.stack(rows).view(len(x), -1, C)


def assert_same_lesson(attention, found, expected, inputs):
    """Compare results, and their gradients with respect to all parameters and inputs."""
    assert_close(found, expected)
    leaves = dict(attention.named_parameters()) | inputs
    if not attention.config.use_qk_norm:
        del leaves["k_proj.bias"]  # it moves all scores of a query alike, which a softmax does not feel
    weighting = torch.randn_like(expected)
    for name, *gradients in zip(
        leaves,
        *(torch.autograd.grad((each * weighting).sum(), [*leaves.values()]) for each in (found, expected)),
        strict=True,
    ):
        assert_close(*gradients, msg=lambda text, name=name: f"{name}: {text}")
        assert gradients[0].abs().max() > 0, name


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize(("gate", "has_norms"), KINDS)
def test_self_attention_equals_a_loop_over_pairs(gate, has_norms, kernel):
    attention = build(SelfAttention, gate, has_norms, kernel, is_causal=False)
    x = torch.randn(B, T, C, dtype=torch.float64, requires_grad=True)
    expected = defined(attention, x, x, gate, has_norms)
    assert_same_lesson(attention, attention(x, None, None)[0], expected, {"x": x})


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize(("gate", "has_norms"), KINDS)
def test_cross_attention_equals_a_loop_over_pairs(gate, has_norms, kernel):
    attention = build(CrossAttention, gate, has_norms, kernel)
    x, source = (torch.randn(B, length, C, dtype=torch.float64, requires_grad=True) for length in (T, S))
    expected = defined(attention, x, source, gate, has_norms)
    assert_same_lesson(attention, attention(x, source, None)[0], expected, {"x": x, "source": source})


@pytest.mark.parametrize("has_norms", [False, True])
@pytest.mark.parametrize("gate", GATES)
def test_packed_sequences_equal_a_loop_over_their_pairs(gate, has_norms):
    attention = build(SelfAttention, gate, has_norms, "sdpa", is_causal=False)
    x = torch.randn(1, T + S, C, dtype=torch.float64, requires_grad=True)
    expected = torch.cat(
        [defined(attention, part, part, gate, has_norms) for part in x.split([T, S], dim=1)], dim=1
    )
    bounds = torch.tensor([0, T, T + S], dtype=torch.int32)
    found = attention(x, PackedSequences(bounds, bounds), None)[0]
    assert_same_lesson(attention, found, expected, {"x": x})


def test_an_open_gate_is_none_and_a_closed_one_passes_nothing_on():
    x = torch.randn(B, T, C, dtype=torch.float64)
    plain = build(SelfAttention, "none", True, "sdpa", is_causal=False)
    for gate in ("headwise", "elementwise"):
        attention = build(SelfAttention, gate, True, "sdpa", is_causal=False)
        attention.load_state_dict(plain.state_dict(), strict=False)
        bias = attention.get_parameter("gate.g_proj.bias")
        bias.data = torch.full_like(bias, 100.0)
        assert_close(attention(x, None, None)[0], plain(x, None, None)[0])
        bias.data = torch.full_like(bias, -100.0)
        assert_close(attention(x, None, None)[0], attention.o_proj.bias.expand(B, T, C))


def test_gates_of_channels_that_are_equal_in_a_head_are_one_of_the_head():
    x = torch.randn(B, T, C, dtype=torch.float64)
    of_heads = build(SelfAttention, "headwise", False, "sdpa", is_causal=False)
    of_channels = build(SelfAttention, "elementwise", False, "sdpa", is_causal=False)
    state = of_heads.state_dict()
    for name in ("gate.g_proj.weight", "gate.g_proj.bias"):
        state[name] = state[name].repeat_interleave(D, dim=0)
    of_channels.load_state_dict(state)
    assert_close(of_channels(x, None, None)[0], of_heads(x, None, None)[0])


def test_gates_are_half_open_before_anything_is_learned():
    torch.manual_seed(0)
    config = TercetDecoderConfig(vocab_size=50, hidden_size=64, num_hidden_layers=1, num_attention_heads=4,
                                 attention_gate="elementwise", initializer_range=1e-9)  # fmt: skip
    gate = TercetDecoderForCausalLM(config).model.layers[0].self_attention.gate
    assert_close(gate(torch.ones(1, 3, 64), torch.randn(1, 3, 64), None), torch.full((1, 3, 64), 0.5))


@pytest.mark.parametrize(
    ("gate", "per_layer"), [("none", 0), ("headwise", C * H + H), ("elementwise", C * H * D + H * D)]
)
def test_each_attention_has_a_gate_of_its_own(gate, per_layer):
    fields = {
        "vocab_size": 50,
        "hidden_size": C,
        "head_dim": D,
        "num_attention_heads": H,
        "attention_bias": True,
    }
    config = TercetSeq2SeqConfig(
        **fields, num_hidden_layers=2, decoder_num_hidden_layers=3, attention_gate=gate
    )
    model = TercetSeq2SeqForConditionalGeneration(config)
    counts = {name: p.numel() for name, p in model.named_parameters() if ".gate." in name}
    assert sum(counts.values()) == (2 + 2 * 3) * per_layer


def test_each_stack_has_as_many_gates_as_heads(builder):
    model = builder("seq2seq", attention_gate="headwise", decoder_num_attention_heads=2)
    gates = [
        stack.layers[0].self_attention.gate.g_proj for stack in (model.get_encoder(), model.get_decoder())
    ]
    assert [gate.out_features for gate in gates] == [4, 2]


def test_a_gate_is_saved_and_none_is_not_named(builder, tmp_path):
    model = builder("decoder", attention_gate="headwise")
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert again.config.attention_gate == "headwise"
    assert_close(dict(again.named_parameters()), dict(model.named_parameters()), rtol=0, atol=0)
    assert "attention_gate" not in builder("decoder").config.to_dict()


def test_an_unknown_gate_is_refused():
    with pytest.raises(
        Exception, match="attention_gate is 'open': choose one of none, headwise, elementwise"
    ):
        TercetDecoderConfig(attention_gate="open")


@pytest.mark.parametrize("member", ["decoder", "seq2seq"])
def test_gates_are_prepacked_for_decoding(member, builder, batch):
    model = builder(member, attention_gate="elementwise")
    model.generate(batch.sequences[0][None], max_new_tokens=2, do_sample=False)
    packed = {layer for layers in prepacked_weights._kept[model].products for layer in layers}
    gates = [module.g_proj for module in model.get_decoder().modules() if isinstance(module, ElementwiseGate)]
    assert gates
    assert packed.issuperset(gates)
