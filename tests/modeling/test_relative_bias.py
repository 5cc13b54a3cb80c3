"""The bias of distances: by hand, behind a cache, with every kind of mask, and where it cannot be had.

Linear biases: by hand, beside transformers' BLOOM, and in both readings of one model.
"""

import pytest
import torch
from torch.testing import assert_close
from transformers import StaticCache
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from tercet.modeling import TercetDecoderConfig, TercetEncoderConfig
from tercet.modeling.attention.relative_bias import LinearBias, RelativeBias, join, keys_so_far

from ..tolerances import CLOSE

CPU = torch.device("cpu")


FEW = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 16}


def build_bias(is_causal: bool) -> RelativeBias:
    torch.manual_seed(0)
    config = (TercetDecoderConfig if is_causal else TercetEncoderConfig)(num_attention_heads=3, **FEW)
    return RelativeBias(config, is_causal=is_causal)


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_bias_of_a_pair_is_that_of_its_distance(is_causal):
    model = build_bias(is_causal)
    bias = model.bias(CPU, num_queries=4, num_keys=30, past_length=21)
    for query in range(4):
        for key in range(30):
            bucket = model.buckets(torch.tensor(key - (21 + query)))
            assert torch.equal(bias[0, :, query, key], model.table.weight[bucket])


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_table_learns_the_sum_of_its_pairs(is_causal):
    model = build_bias(is_causal)
    weight = torch.randn(1, 3, 9, 9)
    (model.bias(CPU, 9, 9) * weight).sum().backward()
    expected = torch.zeros_like(model.table.weight)
    for query in range(9):
        for key in range(9):
            expected[model.buckets(torch.tensor(key - query))] += weight[0, :, query, key]
    assert_close(model.table.weight.grad, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_mask_forbids_the_same_by_a_finite_number(dtype):
    bias = torch.randn(1, 3, 4, 5) - 20
    allowed = torch.rand(2, 1, 4, 5) < 0.5
    numbers = [torch.zeros(()).where(allowed, lowest) for lowest in (torch.finfo(dtype).min, -torch.inf)]
    masks = [join(mask, bias, dtype) for mask in (allowed, *numbers)]
    assert all(mask.dtype == dtype and mask.isfinite().all() for mask in masks)
    assert_close(masks[0], bias.to(dtype).where(allowed, torch.finfo(dtype).min))
    assert torch.equal(masks[0], masks[1])
    assert torch.equal(masks[0], masks[2])


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("training", [False, True])
def test_half_precision_of_autocast_stays_near(kernel, training, member, builder, batch):
    model = builder(member, "t5", kernel).train(training)
    ids, mask = batch.padded("left")
    inputs = {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(**inputs).loss
    assert_close(rounded, model(**inputs).loss, rtol=0.02, atol=0.02, check_dtype=False)


def test_a_given_mask_may_allow_later_keys(builder):
    """As in a prefix that is read in both directions: later keys then have the bucket of distance 0."""
    model = builder("decoder", "t5")
    ids = torch.randint(3, 61, (2, 6))
    everything = model(input_ids=ids, attention_mask=torch.ones(2, 1, 6, 6, dtype=torch.bool)).logits
    assert not torch.allclose(everything[:, 0], model(input_ids=ids).logits[:, 0], atol=1e-2)


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_shared_keys_and_biased_heads_go_together(kernel, builder, batch):
    model = builder("decoder", "t5", kernel, num_key_value_heads=2)
    ids, mask = batch.padded("left")
    options = {"do_sample": False, "max_new_tokens": 5, "eos_token_id": None}
    with_cache = model.generate(ids, attention_mask=mask, **options)
    assert torch.equal(model.generate(ids, attention_mask=mask, use_cache=False, **options), with_cache)


def test_a_compiled_step_with_a_static_cache_equals_one_pass(builder):
    torch._dynamo.reset()
    model = builder("decoder", "t5")
    ids = torch.randint(3, 61, (2, 7))
    cache = StaticCache(config=model.config, max_cache_len=12)
    with torch.no_grad():
        model(input_ids=ids[:, :4], past_key_values=cache, use_cache=True)
        compiled, positions = torch.compile(model, fullgraph=True, backend="eager"), torch.arange(7)[None]
        steps = [
            compiled(ids[:, place], position_ids=positions[:, place], past_key_values=cache).logits
            for place in (slice(4, 5), slice(5, 6), slice(6, 7))
        ]
        assert_close(torch.cat(steps, dim=1), model(input_ids=ids).logits[:, 4:], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("kernel", ["flash_attention_2", "flex_attention", "kernels-community/flash-attn2"])
def test_kernels_without_a_bias_are_refused(kernel, member, builder):
    refusal = f"attn_implementation='{kernel}' does not support the bias.*'sdpa' or 'eager'"
    with pytest.raises(ValueError, match=refusal):
        builder(member, "t5", kernel)
    model = builder(member, "t5")
    with pytest.raises(ValueError, match=refusal):
        model.set_attn_implementation(kernel)
    assert model.config._attn_implementation == "sdpa"


def test_one_table_serves_all_layers_of_a_stack(builder):
    tables = [name for name, _ in builder("seq2seq", "t5").named_parameters() if "relative_bias" in name]
    assert tables == [f"model.{stack}.relative_bias.table.weight" for stack in ("encoder", "decoder")]


SLOPES = {
    1: [2**-8],
    2: [2**-4, 2**-8],
    4: [2**-2, 2**-4, 2**-6, 2**-8],
    # Those of 4 heads, and the first and the third of 8.
    6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3],
}


def build_linear_bias(num_heads: int, is_causal: bool) -> LinearBias:
    config = (TercetDecoderConfig if is_causal else TercetEncoderConfig)(
        hidden_size=num_heads * 4, num_attention_heads=num_heads
    )
    return LinearBias(config, is_causal=is_causal)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("num_heads", SLOPES)
def test_the_bias_is_minus_slope_times_distance(num_heads, is_causal):
    bias = build_linear_bias(num_heads, is_causal).bias(CPU, num_queries=5, num_keys=12, past_length=7)
    assert bias.shape == (1, num_heads, 5, 12)
    for head, slope in enumerate(SLOPES[num_heads]):
        for query in range(5):
            for key in range(12):
                assert bias[0, head, query, key] == -slope * abs(7 + query - key)


@pytest.mark.parametrize("num_heads", [4, 6, 8, 12])
def test_attention_is_that_of_the_stock_bias(num_heads):
    """Which counts from the first key instead of from the query: softmax ignores the difference."""
    length = 9
    scores = torch.randn(1, num_heads, length, length)
    stock = build_alibi_tensor(torch.ones(1, length, dtype=torch.long), num_heads, torch.float32)[None]
    ours = build_linear_bias(num_heads, is_causal=True).bias(CPU, length, length)
    allowed = keys_so_far(CPU, length, length, 0)
    theirs, own = (
        (scores + bias).masked_fill(~allowed, -torch.inf).softmax(-1)
        for bias in (stock.view(1, num_heads, 1, length), ours)
    )
    assert_close(own, theirs)


def test_it_has_no_parameters_and_saves_none(member, builder):
    model = builder(member, "alibi")
    without = builder(member, "alibi", position_embedding_type="none")
    assert model.state_dict().keys() == without.state_dict().keys()
    assert not any("bias" in name for name, _ in model.named_buffers())


@pytest.mark.parametrize("sliding_window", [None, 3])
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("reader", ["encoder", "decoder"])
def test_both_readings_are_softmax_of_the_biased_scores(reader, is_causal, kernel, sliding_window, builder):
    """The definition: one layer by hand, in both directions of an encoder and of a decoder."""
    fields = {"num_hidden_layers": 1, "sliding_window": sliding_window, "num_attention_heads": 4}
    model = builder(reader, "modern", kernel, position_embedding_type="alibi", **fields).model
    attention = model.layers[0].self_attention
    ids = torch.randint(3, 61, (2, 7))
    caught = {}
    attention.register_forward_pre_hook(lambda _, args, kwargs: caught.update(x=args[0]), with_kwargs=True)
    attention.register_forward_hook(lambda _, args, output: caught.update(y=output[0]))
    model(input_ids=ids, is_causal=is_causal)
    x = caught["x"]
    query, key, value = (
        attention.heads(each(x)) for each in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    place = torch.arange(7)
    distance = place[:, None] - place
    slope = torch.tensor(SLOPES[4])[:, None, None]
    scores = query @ key.mT / 8**0.5 - slope * distance.abs()
    pattern = model.patterns[model.config.types_of_layers[0]].toward(is_causal)
    allowed = distance.abs() < (pattern.window or 7)
    if is_causal:
        allowed = allowed & (distance >= 0)
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    expected = attention.o_proj((weights @ value).transpose(1, 2).flatten(2))
    assert_close(caught["y"], expected, **CLOSE)


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_packed_and_padded_agree_where_a_decoder_reads_both_sides(kernel, builder, batch):
    model = builder("decoder", "alibi", kernel)
    packed = model(**batch.packed(), is_causal=False).logits[0]
    alone = [model(input_ids=ids[None], is_causal=False).logits[0] for ids in batch.sequences]
    assert_close(packed, torch.cat(alone), **CLOSE)
    for side in ("left", "right"):
        ids, mask = batch.padded(side)
        logits = model(input_ids=ids, attention_mask=mask, is_causal=False).logits
        assert_close(logits[mask == 1], torch.cat(alone), **CLOSE)


def test_distances_beyond_the_trained_length_are_no_special_case(builder):
    model = builder("decoder", "alibi", max_position_embeddings=8)
    ids = torch.randint(3, 61, (1, 40))
    assert_close(model(input_ids=ids).logits[:, :8], model(input_ids=ids[:, :8]).logits, **CLOSE)


@pytest.mark.parametrize("kernel", ["flash_attention_2", "flex_attention"])
def test_kernels_without_a_linear_bias_are_refused(kernel, builder):
    with pytest.raises(ValueError, match="does not support the bias of position_embedding_type='alibi'"):
        builder("decoder", "alibi", kernel)
