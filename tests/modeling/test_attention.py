"""Attention against its definition and by hand."""

import math

import pytest
import torch
from torch.testing import assert_close
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from tercet.modeling import TercetDecoderConfig
from tercet.modeling.attention.dot_product import additive, scaled_dot_product, single_query_attention
from tercet.modeling.attention.multi_head import CrossAttention, SelfAttention

B, T, S, C, H = 2, 5, 7, 32, 4


@pytest.fixture(params=[4, 2, 1], ids=["all-heads", "grouped", "one-head"])
def config(request):
    return TercetDecoderConfig(
        hidden_size=C, num_attention_heads=H, num_key_value_heads=request.param, attn_implementation="sdpa"
    )


def test_the_definition_by_hand():
    query = torch.tensor([[[[1.0, 0.0]]]])
    key = value = torch.eye(2)[None, None]
    read, weights = scaled_dot_product(torch.nn.Module(), query, key, value, None, scaling=1.0)
    expected = torch.tensor([math.e, 1.0]) / (math.e + 1)
    assert_close(weights[0, 0, 0], expected)
    assert_close(read[0, 0, 0], expected)


def test_matrices_equal_a_loop_over_queries():
    query, key, value = torch.randn(1, 2, T, 8), torch.randn(1, 2, S, 8), torch.randn(1, 2, S, 8)
    read, _ = scaled_dot_product(torch.nn.Module(), query, key, value, None, scaling=8**-0.5)
    for head in range(2):
        for t in range(T):
            scores = torch.stack([query[0, head, t] @ key[0, head, s] / math.sqrt(8) for s in range(S)])
            one = sum(weight * value[0, head, s] for s, weight in enumerate(scores.softmax(0)))
            assert_close(read[0, t, head], one)


def test_kernel_agrees_with_the_definition(config):
    attention = SelfAttention(config, 0, is_causal=False).eval()
    x = torch.randn(B, T, C)
    fast, _ = attention(x, None, None)
    config._attn_implementation = "eager"
    slow, weights = attention(x, None, None)
    assert_close(fast, slow)
    assert_close(weights.sum(-1), torch.ones(B, H, T))


def test_shared_keys_equal_repeated_ones():
    """Grouped heads are full heads whose key and value matrices repeat (Ainslie et al., 2023)."""
    fields = {"hidden_size": C, "num_attention_heads": H, "attn_implementation": "eager"}
    grouped = SelfAttention(TercetDecoderConfig(num_key_value_heads=2, **fields), 0, is_causal=False)
    full = SelfAttention(TercetDecoderConfig(**fields), 0, is_causal=False)
    state = grouped.state_dict()
    for name in ("k_proj.weight", "v_proj.weight"):
        state[name] = state[name].unflatten(0, (2, -1)).repeat_interleave(2, dim=0).flatten(0, 1)
    full.load_state_dict(state)
    x = torch.randn(B, T, C)
    assert_close(grouped(x, None, None)[0], full(x, None, None)[0])


def test_normalized_heads_do_not_feel_how_long_queries_and_keys_are(config):
    config.use_qk_norm = True
    attention = CrossAttention(config, 0).eval()
    x, source = torch.randn(B, T, C), torch.randn(B, S, C)
    before, _ = attention(x, source, None)
    attention.q_proj.weight.data *= 100
    attention.k_proj.weight.data *= 100
    assert_close(attention(x, source, None)[0], before, rtol=1e-3, atol=1e-4)
    attention.k_norm.get_parameter("weight").data *= 2
    assert not torch.allclose(attention(x, source, None)[0], before, atol=1e-3)


def test_heads_are_as_wide_as_they_are_told():
    fields = {"hidden_size": C, "num_attention_heads": H, "attn_implementation": "eager"}
    attention = SelfAttention(TercetDecoderConfig(head_dim=6, **fields), 0, is_causal=False)
    assert attention.q_proj.weight.shape == (H * 6, C)
    assert attention.o_proj.weight.shape == (C, H * 6)
    assert attention(torch.randn(B, T, C), None, None)[0].shape == (B, T, C)


def test_the_order_of_a_source_does_not_matter(config):
    attention = CrossAttention(config, 0).eval()
    x, source = torch.randn(B, T, C), torch.randn(B, S, C)
    assert_close(attention(x, source[:, torch.randperm(S)], None)[0], attention(x, source, None)[0])


def test_a_source_is_remembered(config):
    attention = CrossAttention(config, 0).eval()
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    x, source = torch.randn(B, T, C), torch.randn(B, S, C)
    first, _ = attention(x, source, None, cache)
    again, _ = attention(x, torch.full_like(source, torch.nan), None, cache)
    assert_close(first, again)


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
    given = allowed if mask == "boolean" else added
    arguments = {"scaling": 0.3, "dropout": 0.0}
    read, _ = single_query_attention(torch.nn.Module(), query, key, value, given, **arguments)
    expected, _ = scaled_dot_product(torch.nn.Module(), query, key, value, added, **arguments)
    assert read.dtype == dtype
    assert_close(read, expected, **({"rtol": 0.02, "atol": 0.02} if dtype == torch.bfloat16 else {}))
