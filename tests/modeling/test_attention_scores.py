"""Attention scores, gates and normalized heads: each is its formula, pair by pair, whatever the kernel, the
layout, the positions and the cache.
"""

import pytest
import torch
from torch.testing import assert_close

from tercet.modeling import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.modeling.attention import scores as attention_scores
from tercet.modeling.attention.kernels import Situation, choose_kernel, kernel_form
from tercet.modeling.attention.multi_head import CrossAttention, SelfAttention
from tercet.modeling.attention.packing import PackedSequences
from tercet.modeling.attention.scores import GATES, SCORES, ElementwiseGate
from tercet.modeling.generation import prepacked_weights
from tercet.modeling.stock import to_stock

from ..tolerances import CLOSE
from .one_lesson import assert_one_lesson

OTHERS = [name for name in SCORES if name != "scaled_dot_product"]
B, T, S, C, H, G, D = 2, 5, 7, 24, 4, 2, 6
EPS = 1e-6
KINDS = [
    {"attention_score": score, "attention_gate": gate, "use_qk_norm": has_norms}
    for score, gate in [
        *((score, "none") for score in SCORES),
        *(("scaled_dot_product", gate) for gate in GATES),
    ]
    for has_norms in (False, True)
]


def with_weights(model, scale: float = 0.5):
    """Move the parameters of all scores away from where they begin."""
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "score." in name:
            parameter.data += scale * torch.randn_like(parameter)
    return model


def built(attention_class, kernel: str = "sdpa", **fields):
    """Build attention in double precision, no weight of which is 0 or 1; a direction is not a field."""
    torch.manual_seed(0)
    arguments = {"is_causal": fields.pop("is_causal", False)} if attention_class is SelfAttention else {}
    sizes = {
        "hidden_size": C,
        "num_attention_heads": H,
        "num_key_value_heads": G,
        "head_dim": D,
        "norm_eps": EPS,
    }
    config = TercetDecoderConfig(**sizes | fields, attention_bias=True, attn_implementation=kernel)
    attention = attention_class(config, 0, **arguments).double()
    for parameter in attention.parameters():
        parameter.data = 0.5 * torch.randn_like(parameter) + (parameter.dim() == 1)
    return attention


def scored(score: str, weights: dict, head: int, query, key):
    """Compare a query and a key of a head by the formula of the score."""
    if score == "scaled_dot_product":
        return query @ key / D**0.5
    if score == "dot_product":
        return query @ key
    if score == "bilinear":
        return query @ weights["score.matrix"][head] @ key
    vector = weights["score.vector"].view(H, D)[head]
    if score == "concatenated":
        of_query = torch.linspace(-3, 3, D, dtype=query.dtype)  # whatever it is
        return torch.cat((of_query, vector)) @ torch.cat((query, key))
    hidden = weights["score.query_matrix"][head] @ query + weights["score.key_matrix"][head * G // H] @ key
    return vector @ hidden.tanh()


def defined(attention, x, source, is_causal: bool = False):
    """Attend pair by pair: the norm of Henry et al., 2020, and the gate of Qiu et al., 2025, section 2.2."""
    weights, config = dict(attention.named_parameters()), attention.config

    def affine(name, state):
        return weights[f"{name}.weight"] @ state + weights[f"{name}.bias"]

    def normed(name, head):
        if not config.use_qk_norm:
            return head
        return head / (head.square().mean() + EPS).sqrt() * weights[f"{name}.weight"]

    rows = []
    for b in range(len(x)):
        for t in range(x.shape[1]):
            heads = []
            for h in range(H):
                own, shared = slice(h * D, h * D + D), slice(h * G // H * D, h * G // H * D + D)
                query = normed("q_norm", affine("q_proj", x[b, t])[own])
                states = source[b, : t + 1] if is_causal else source[b]
                keys = [normed("k_norm", affine("k_proj", state)[shared]) for state in states]
                scores = [scored(config.attention_score, weights, h, query, key) for key in keys]
                values = torch.stack([affine("v_proj", state)[shared] for state in states])
                head = torch.stack(scores).softmax(0) @ values
                if config.attention_gate != "none":
                    gate = affine("gate.g_proj", x[b, t])
                    head = head / (1 + torch.exp(-gate[h if config.attention_gate == "headwise" else own]))
                heads.append(head)
            rows.append(affine("o_proj", torch.cat(heads)))
    return torch.stack(rows).view(len(x), -1, C)


def assert_same_lesson(attention, found, expected, **inputs):
    """Compare results, and their gradients with respect to all parameters and inputs."""
    assert_close(found, expected)
    leaves = dict(attention.named_parameters()) | inputs
    weighting = torch.randn_like(expected)
    found, expected = (
        torch.autograd.grad((each * weighting).sum(), [*leaves.values()]) for each in (found, expected)
    )
    is_asked = attention.config.attention_score != "concatenated"  # whose queries are not
    is_shift = attention.config.attention_score != "additive" and not attention.config.use_qk_norm
    for name, ours, theirs in zip(leaves, found, expected, strict=True):
        assert_close(ours, theirs, msg=lambda text, name=name: f"{name}: {text}")
        # A bias that moves all scores of a query alike is nothing that a softmax feels.
        if not (name.startswith("q_") and not is_asked) and not (name == "k_proj.bias" and is_shift):
            assert ours.abs().max() > 0, name


def draw(*size: int):
    """Draw states whose gradients are compared."""
    return torch.randn(size, dtype=torch.float64, requires_grad=True)


@pytest.fixture
def small_blocks(monkeypatch):
    """Let blocks have two queries or one."""
    monkeypatch.setitem(attention_scores.BLOCK_BYTES, "cpu", 2 * 8 * B * H * T * D)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_self_attention_equals_a_loop_over_pairs(kind, kernel, is_causal, small_blocks):
    attention, x = built(SelfAttention, kernel, is_causal=is_causal, **kind), draw(B, T, C)
    mask = torch.ones(T, T).tril().log().double() if is_causal and kernel == "eager" else None
    mask = kernel_form(mask, attention.config, x, is_causal=is_causal, dropout=0.0)
    assert_same_lesson(attention, attention(x, mask, None)[0], defined(attention, x, x, is_causal), x=x)


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_cross_attention_equals_a_loop_over_pairs(kind, kernel, small_blocks):
    attention, x, source = built(CrossAttention, kernel, **kind), draw(B, T, C), draw(B, S, C)
    found, expected = attention(x, source, None)[0], defined(attention, x, source)
    asks = kind["attention_score"] != "concatenated" or kind["attention_gate"] != "none"
    assert_same_lesson(attention, found, expected, source=source, **({"x": x} if asks else {}))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_packed_sequences_equal_a_loop_over_their_pairs(kind, is_causal, small_blocks):
    attention, x = built(SelfAttention, is_causal=is_causal, **kind), draw(1, T + S, C)
    expected = torch.cat([defined(attention, part, part, is_causal) for part in x.split([T, S], 1)], dim=1)
    bounds = torch.tensor([0, T, T + S], dtype=torch.int32)
    assert_same_lesson(attention, attention(x, PackedSequences(bounds, bounds), None)[0], expected, x=x)


@pytest.mark.parametrize("variant", ["grouped", "t5", "sliding_t5", "qwen"])
@pytest.mark.parametrize("member", ["encoder", "decoder"])
@pytest.mark.parametrize("score", ["bilinear", "additive"])
def test_every_layout_and_kernel_has_the_score(score, member, variant, builder, batch, targets):
    def build(kernel):
        return with_weights(builder(member, variant, kernel, attention_score=score))

    wide = {"rtol": 1e-3, "atol": 1e-3}
    assert_one_lesson(build, member, batch, targets, close=wide, near=wide)


@pytest.mark.parametrize("variant", ["modern", "t5"])
@pytest.mark.parametrize("score", OTHERS)
def test_packed_pairs_are_those_of_each_source_and_target_alone(score, variant, builder, batch, targets):
    model = with_weights(builder("seq2seq", variant, attention_score=score))
    alone = [
        model(input_ids=source[None], decoder_input_ids=target[None]).logits[0]
        for source, target in zip(batch.sequences, targets.sequences, strict=True)
    ]
    sources, packed = batch.packed(), targets.packed()
    logits = model(
        input_ids=sources["input_ids"],
        cu_seq_lens_k=sources["cu_seq_lens_q"],
        decoder_input_ids=packed["input_ids"],
        cu_seq_lens_q=packed["cu_seq_lens_q"],
    ).logits
    assert_close(logits[0], torch.cat(alone), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("score", OTHERS)
@pytest.mark.parametrize("member", ["decoder", "seq2seq"])
def test_decoding_is_the_same_with_and_without_a_cache(score, member, builder, batch):
    ids, mask = batch.padded("left" if member == "decoder" else "right")
    options = {"attention_mask": mask, "do_sample": False, "max_new_tokens": 4, "pad_token_id": 0}
    for variant in ("modern", "sliding"):
        model = with_weights(builder(member, variant, attention_score=score))
        assert torch.equal(model.generate(ids, **options), model.generate(ids, **options, use_cache=False))


def test_steps_of_decoding_have_the_logits_of_a_forward_pass(builder, batch):
    """The mask of such a step is boolean, also where the definition computes."""
    ids, mask = batch.padded("left")
    options = {"attention_mask": mask, "do_sample": False, "max_new_tokens": 3, "pad_token_id": 0}
    options |= {"return_dict_in_generate": True, "output_logits": True}
    model = with_weights(builder("decoder", attention_score="additive"), 2.0)
    model.set_attn_implementation("eager")
    steps = [model.generate(ids, **options, use_cache=use_cache) for use_cache in (True, False)]
    assert_close(torch.stack(steps[0].logits), torch.stack(steps[1].logits), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("score", OTHERS)
def test_dropout_and_half_precision_leave_gradients_finite(score, builder, batch):
    ids, mask = batch.padded()
    model = with_weights(builder("decoder", attention_score=score, attention_dropout=0.1)).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(ids, mask, labels=ids.masked_fill(mask == 0, -100)).loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_a_transformed_forward_pass_computes_additive_scores_by_their_definition(builder, batch):
    model = with_weights(builder("encoder", attention_score="additive"))
    ids = batch.sequences[0][None]
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def total(parameters):
        return torch.func.functional_call(model, parameters, (ids,)).logits.sum()

    model(ids).logits.sum().backward()
    found = torch.func.grad(total)(parameters)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert_close(found[name], parameter.grad, rtol=1e-3, atol=1e-3)


def test_bilinear_scores_begin_as_dot_products(builder, batch):
    ids, mask = batch.padded()
    model = builder("decoder", attention_score="bilinear")
    dot = builder("decoder", attention_score="dot_product")
    dot.load_state_dict(model.state_dict(), strict=False)
    assert_close(model(ids, mask).logits, dot(ids, mask).logits, **CLOSE)


@pytest.mark.parametrize(
    ("field", "value"), [*(("attention_score", name) for name in OTHERS), ("attention_gate", "headwise")]
)
def test_a_score_or_gate_is_saved_and_the_usual_one_is_not_named(field, value, builder, tmp_path):
    model = with_weights(builder("decoder", **{field: value}))
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert getattr(again.config, field) == value
    assert_close(dict(again.named_parameters()), dict(model.named_parameters()), rtol=0, atol=0)
    assert field not in TercetDecoderConfig().to_dict()


def test_parameters_that_a_checkpoint_lacks_begin_as_those_of_a_new_model(builder, tmp_path):
    builder("decoder").save_pretrained(tmp_path)
    torch.manual_seed(0)
    model = TercetDecoderForCausalLM.from_pretrained(tmp_path, attention_score="additive")
    score = model.model.layers[1].self_attention.score
    assert_close(score.query_matrix, torch.eye(8).expand(4, 8, 8))
    assert 0.1 < score.vector.std() < 0.7


@pytest.mark.parametrize("kernel", ["flash_attention_2", "flex_attention"])
def test_kernels_of_dot_products_refuse_other_scores(kernel):
    config = TercetDecoderConfig(attention_score="additive", num_hidden_layers=1)
    with pytest.raises(ValueError, match=f"attn_implementation='{kernel}' computes dot products.*'additive'"):
        TercetDecoderForCausalLM._from_config(config, attn_implementation=kernel)
    situation = Situation(kernel, "padded", torch.device("cpu"), torch.float32, 8, ("scores",))
    with pytest.raises(ValueError, match="computes dot products"):
        choose_kernel(situation)


@pytest.mark.parametrize("score", OTHERS)
def test_no_stock_architecture_has_other_scores(score, builder):
    with pytest.raises(ValueError, match=f"attention_score is '{score}', and would be 'scaled_dot_product'"):
        to_stock(builder("decoder", attention_score=score))


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


@pytest.mark.parametrize("member", ["decoder", "seq2seq"])
def test_gates_are_prepacked_for_decoding(member, builder, batch):
    model = builder(member, attention_gate="elementwise")
    model.generate(batch.sequences[0][None], max_new_tokens=2, do_sample=False)
    packed = {layer for layers in prepacked_weights._kept[model].products for layer in layers}
    gates = [module.g_proj for module in model.get_decoder().modules() if isinstance(module, ElementwiseGate)]
    assert gates
    assert packed.issuperset(gates)
