"""Attention against its definition and by hand.

What may be seen: the decoder's past, the encoder's everything, and the one set of weights behind both.
"""

import math

import pytest
import torch
from torch.testing import assert_close

from tercet.modeling import (
    TercetDecoderForCausalLM,
    TercetDecoderModel,
    TercetEncoderModel,
)
from tercet.modeling.attention.dot_product import additive, scaled_dot_product, single_query_attention
from tercet.modeling.attention.patterns import PATTERNS
from tercet.modeling.layers.positions import POSITIONS


def test_the_definition_by_hand():
    query = torch.tensor([[[[1.0, 0.0]]]])
    key = value = torch.eye(2)[None, None]
    read, weights = scaled_dot_product(torch.nn.Module(), query, key, value, None, scaling=1.0)
    expected = torch.tensor([math.e, 1.0]) / (math.e + 1)
    assert_close(weights[0, 0, 0], expected)
    assert_close(read[0, 0, 0], expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mask", [None, "additive", "boolean", "one per head"])
@pytest.mark.parametrize("key_value_heads", [6, 2, 1])
def test_a_single_query_reads_as_defined(dtype, mask, key_value_heads):
    torch.manual_seed(0)
    query = torch.randn(3, 1, 6, 8, dtype=dtype).transpose(1, 2)
    key, value = torch.randn(2, 3, key_value_heads, 11, 8, dtype=dtype)
    num_masks = 6 if mask == "one per head" else 1
    allowed = None if mask is None else torch.rand(3, num_masks, 1, 11) < 0.7
    added = additive(allowed, False, 11, like=query)
    given = (
        allowed if mask == "boolean" or added is None else added.to(torch.promote_types(dtype, torch.float32))
    )
    arguments = {"scaling": 0.3, "dropout": 0.0}
    read, _ = single_query_attention(torch.nn.Module(), query, key, value, given, **arguments)
    expected, _ = scaled_dot_product(torch.nn.Module(), query, key, value, added, **arguments)
    assert read.dtype == dtype
    assert_close(read, expected, **({"rtol": 0.02, "atol": 0.02} if dtype == torch.bfloat16 else {}))


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_the_decoder_never_looks_ahead(variant, kernel, builder):
    model = builder("decoder", variant, kernel)
    vectors = model.get_input_embeddings()(torch.randint(3, 61, (2, 8))).detach().requires_grad_()
    for position in (0, 3, 6):
        (gradient,) = torch.autograd.grad(model(inputs_embeds=vectors).logits[:, position].sum(), vectors)
        assert gradient[:, position + 1 :].abs().max() == 0
        assert gradient[:, : position + 1].abs().min(dim=-1).values.sum() > 0


def test_the_target_side_never_looks_ahead_but_sees_the_whole_source(builder):
    model = builder("seq2seq")
    source = model.get_input_embeddings()(torch.randint(3, 61, (1, 5))).detach().requires_grad_()
    target = model.get_input_embeddings()(torch.randint(3, 61, (1, 6))).detach().requires_grad_()
    logits = model(inputs_embeds=source, decoder_inputs_embeds=target).logits
    of_source, of_target = torch.autograd.grad(logits[:, 2].sum(), (source, target))
    assert of_target[:, 3:].abs().max() == 0
    assert (of_source.abs().sum(-1) > 0).all()


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("score", ["scaled_dot_product", "additive"])
def test_a_direction_for_one_call_leaves_the_whole_source_visible(score, kernel, builder):
    model = builder("seq2seq", kernel=kernel, attention_score=score)
    source, target = torch.randint(3, 61, (2, 7)), torch.randint(3, 61, (2, 5))
    encoded = model.get_encoder()(source)
    inputs = {"encoder_outputs": encoded, "decoder_input_ids": target}
    assert_close(model(**inputs, is_causal=True).logits, model(**inputs).logits)
    definition = builder("seq2seq", kernel="eager", attention_score=score)
    expected = definition(source, decoder_input_ids=target, is_causal=True).logits
    found = model(source, decoder_input_ids=target, is_causal=True).logits
    assert_close(found, expected, rtol=1e-4, atol=2e-5)


def test_the_encoder_sees_everything(builder):
    model = builder("encoder")
    vectors = model.get_input_embeddings()(torch.randint(3, 61, (1, 6))).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(model(inputs_embeds=vectors).logits[:, 0].sum(), vectors)
    assert (gradient.abs().sum(-1) > 0).all()


@pytest.mark.parametrize("training", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize(("member", "seen"), [("encoder", range(2, 9)), ("decoder", range(3, 6))])
def test_a_sliding_layer_reads_its_window_and_nothing_else(member, seen, training, builder):
    """With a window of 3, token 5 reads three tokens on either side and itself, or the last three."""
    model = builder(member, layer_types=["sliding_attention"] * 2, sliding_window=3)
    layer = model.model.train(training)
    layer.layers = layer.layers[:1]
    vectors = torch.randn(2, 14, 32, requires_grad=True)
    mask = torch.stack((torch.ones(14), torch.arange(14) >= 2)).long()
    states = layer(inputs_embeds=vectors, attention_mask=mask, use_cache=False).last_hidden_state
    for row, first in enumerate((0, 2)):
        (gradient,) = torch.autograd.grad(states[row, first + 5].square().sum(), vectors, retain_graph=True)
        assert gradient.abs().sum(-1).nonzero().tolist() == [[row, first + token] for token in seen]


def causal_mask(config, kind: str, length: int) -> torch.Tensor:
    """Additive mask (2, 1, T, T) of a causal pattern, as transformers makes it for the definition."""
    positions = torch.arange(length)
    allowed = PATTERNS[kind](config, is_causal=True).allows(positions[:, None], positions)
    lowest = torch.finfo(torch.float32).min
    return torch.zeros(length, length).masked_fill(~allowed, lowest).expand(2, 1, -1, -1)


def test_an_encoder_read_causally_is_the_decoder_bit_for_bit(variant, builder, tmp_path):
    encoder = builder("encoder", variant, "eager", type_vocab_size=0)
    if encoder.config.position_embedding_type == "relative_bias":
        pytest.skip("an encoder's bias has buckets for later keys, too")
    encoder.save_pretrained(tmp_path)
    decoder = TercetDecoderForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    ids = torch.randint(3, 61, (2, 9))
    as_decoder = decoder(input_ids=ids).logits
    masks = {kind: causal_mask(decoder.config, kind, 9) for kind in decoder.config.types_of_layers}
    as_encoder = encoder(input_ids=ids, attention_mask=masks).logits
    assert torch.equal(as_decoder, as_encoder)
    assert not torch.allclose(as_decoder, encoder(input_ids=ids).logits, atol=1e-2)


def test_encoder_and_decoder_have_the_same_parameters(variant, builder):
    encoder = builder("encoder", variant, type_vocab_size=0).model
    decoder = builder("decoder", variant).model
    assert isinstance(encoder, TercetEncoderModel)
    assert isinstance(decoder, TercetDecoderModel)
    assert {n: p.shape for n, p in encoder.named_parameters()} == {
        n: p.shape for n, p in decoder.named_parameters()
    }


def test_without_positions_the_encoder_does_not_know_the_order(builder):
    model = builder("encoder", "unordered").model
    ids, order = torch.randint(3, 61, (1, 7)), torch.randperm(7)
    assert_close(
        model(input_ids=ids[:, order]).last_hidden_state,
        model(input_ids=ids).last_hidden_state[:, order],
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("kind", [kind for kind in POSITIONS if kind != "none"])
def test_with_positions_it_does(kind, builder):
    model = builder("encoder", position_embedding_type=kind).model
    ids, order = torch.randint(3, 61, (1, 7)), torch.arange(7).roll(2)
    states, reordered = (model(input_ids=x).last_hidden_state for x in (ids, ids[:, order]))
    assert not torch.allclose(reordered, states[:, order], atol=1e-2)
