"""Sparse patterns by blocks: the same numbers as by the map of all pairs, in linear memory.

Long prompts of sparse patterns: an empty cache is filled by blocks, with what all pairs would give.
"""

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers.cache_utils import DynamicCache, EncoderDecoderCache, StaticCache

from tercet.modeling import TercetEncoderConfig
from tercet.modeling.attention import dot_product as sparse
from tercet.modeling.attention.packing import is_empty
from tercet.modeling.attention.patterns import PATTERNS

from .ragged import ragged

FIELDS = {
    "sliding_window": 40,
    "attention_block_size": 8,
    "attention_window_blocks": 2,
    "attention_global_tokens": 5,
    "attention_random_blocks": 2,
    "max_position_embeddings": 512,
}


SPARSE = ["sliding_attention", "big_bird_attention"]


SCALING = 0.25


LENGTHS = (400, 330, 40)
"""Of sequences, the longest of which are sparse; one is not."""


def pattern_of(kind, is_causal, **fields):
    """Build a pattern alone."""
    return PATTERNS[kind](TercetEncoderConfig(**FIELDS | fields), is_causal=is_causal)


def allowed_by(pattern, length):
    """Give the map of all pairs (t, t)."""
    positions = torch.arange(length)
    return pattern.allows(positions[:, None], positions)


def draw_heads(length, num_sequences=2, dtype=torch.float32):
    """Draw queries of four heads, and keys and values of two."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(num_sequences, length, heads, 16, generator=generator, dtype=dtype).requires_grad_()
        for heads in (4, 2, 2)
    ]


def by_definition(heads, lengths, pattern):
    """Attend by a map of all pairs."""
    query, key, value = (x.transpose(1, 2).float() for x in heads)
    allowed = allowed_by(pattern, query.shape[2]) & (torch.arange(query.shape[2]) < lengths[:, None])[:, None]
    return scaled_dot_product_attention(
        query, key, value, allowed[:, None], scale=SCALING, enable_gqa=True
    ).transpose(1, 2)


def results(attended, heads, lengths):
    """List what is attended at tokens, and the gradients of a random sum of it."""
    is_token = (torch.arange(attended.shape[1]) < lengths[:, None])[..., None, None]
    weights = torch.randn(attended.shape, generator=torch.Generator().manual_seed(1))
    tokens = attended * is_token
    return [tokens, *torch.autograd.grad((tokens * weights).sum(), heads)]


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("kind", SPARSE)
def test_the_blocks_are_those_with_an_allowed_pair(kind, is_causal):
    for fields in ({}, {"attention_global_tokens": 16}, {"attention_random_blocks": 0, "sliding_window": 2}):
        pattern = pattern_of(kind, is_causal, **fields)
        size = pattern.block_size
        assert size is not None
        for num_blocks in (1, 2, 9, 20):
            blocks = allowed_by(pattern, num_blocks * size).unflatten(1, (-1, size)).unflatten(0, (-1, size))
            expected = [row.nonzero().flatten().tolist() for row in blocks.any(3).any(1)]
            assert pattern.key_blocks(num_blocks) == expected


@pytest.mark.parametrize("length", [5, 64, 203])
@pytest.mark.parametrize("chunk_bytes", [1, sparse.ROWS_BYTES])
@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("kind", SPARSE)
def test_blocks_equal_the_map_of_all_pairs(kind, is_causal, chunk_bytes, length, monkeypatch):
    monkeypatch.setattr(sparse, "ROWS_BYTES", chunk_bytes)
    pattern, heads = pattern_of(kind, is_causal), draw_heads(length)
    lengths = torch.tensor([length, length // 2])
    attended = sparse.block_sparse_attention(*heads, lengths, pattern, SCALING)
    expected = by_definition(heads, lengths, pattern)
    assert_close(results(attended, heads, lengths), results(expected, heads, lengths), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunk_bytes", [500, sparse.ROWS_BYTES])
@pytest.mark.parametrize("is_causal", [True, False])
def test_gradients_are_those_of_finite_differences(is_causal, chunk_bytes, monkeypatch):
    monkeypatch.setattr(sparse, "ROWS_BYTES", chunk_bytes)
    fields = {"attention_block_size": 2, "attention_global_tokens": 3, "attention_random_blocks": 1}
    pattern, lengths = pattern_of("big_bird_attention", is_causal, **fields), torch.tensor([17, 9])
    heads = [x[..., :2].double().detach().requires_grad_() for x in draw_heads(17)]
    is_token = (torch.arange(17) < lengths[:, None])[..., None, None]

    def attend(*heads):
        return sparse.block_sparse_attention(*heads, lengths, pattern, SCALING) * is_token

    assert torch.autograd.gradcheck(attend, heads, fast_mode=True)


@pytest.mark.parametrize("is_causal", [True, False])
def test_half_precision_is_as_near_as_its_format_allows(is_causal):
    pattern, lengths = pattern_of("big_bird_attention", is_causal), torch.tensor([200, 130])
    heads = draw_heads(200, dtype=torch.bfloat16)
    attended = sparse.block_sparse_attention(*heads, lengths, pattern, SCALING)
    assert attended.dtype == torch.bfloat16
    expected = by_definition(heads, lengths, pattern)
    found, exact = (results(each, heads, lengths) for each in (attended.float(), expected))
    for ours, theirs in zip(found, exact, strict=True):
        assert (ours - theirs).float().norm() < 0.01 * theirs.float().norm()


def test_what_is_kept_for_the_backward_pass_grows_with_the_length():
    pattern, kept = pattern_of("big_bird_attention", False), []

    def keep(x):
        kept[-1] += x.nbytes
        return x

    for length in (256, 512):
        kept.append(0)
        heads = draw_heads(length, 1)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            sparse.block_sparse_attention(*heads, torch.tensor([length]), pattern, SCALING)
    assert kept[1] < 2.01 * kept[0]


def test_only_long_sequences_of_sparse_patterns_are_computed_by_blocks():
    pattern = pattern_of("big_bird_attention", False)
    assert sparse.is_sparse(pattern, 300)
    assert not sparse.is_sparse(pattern, 256)
    assert not sparse.is_sparse(pattern_of("big_bird_attention", False, attention_block_size=64), 300)
    assert not sparse.is_sparse(pattern_of("sliding_attention", False, sliding_window=250), 300)
    assert not sparse.is_sparse(pattern_of("full_attention", False), 10_000)


@pytest.fixture
def long_batch(batch):
    """Make a batch of three sequences, two of which are long."""
    generator = torch.Generator().manual_seed(0)
    sequences = [torch.randint(3, 61, (length,), generator=generator) for length in LENGTHS]
    return type(batch)(sequences)


def fields_of(kind):
    """Give the fields of a model whose first layer has the pattern."""
    return FIELDS | {"layer_types": [kind, "full_attention"]}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("member", ["encoder", "decoder"])
@pytest.mark.parametrize("kind", SPARSE)
def test_long_batches_are_computed_by_blocks(
    kind, member, kernel, side, builder, long_batch, lengths_by_blocks
):
    model = builder(member, "grouped", kernel, **fields_of(kind))
    without_cache = {"use_cache": False} if member == "decoder" else {}
    ids, mask = long_batch.padded(side)
    padded = model(ids, mask, **without_cache).logits[mask.bool()]
    alone = [model(ids[None], **without_cache).logits[0] for ids in long_batch.sequences]
    packed = model(**long_batch.packed()).logits[0]
    counted = [
        model(ids[None], position_ids=torch.arange(len(ids))[None], **without_cache).logits[0]
        for ids in long_batch.sequences
    ]
    assert sorted(lengths_by_blocks) == sorted([*LENGTHS[:2]] * 4)
    definition = builder(member, "grouped", "eager", **fields_of(kind))
    expected = definition(ids, mask, output_attentions=True).logits[mask.bool()]
    for found in (padded, torch.cat(alone), packed, torch.cat(counted)):
        assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("member", ["encoder", "decoder", "seq2seq"])
@pytest.mark.parametrize("kind", SPARSE)
def test_long_batches_have_the_gradients_of_the_definition(
    kind, member, builder, long_batch, lengths_by_blocks
):
    gradients = []
    ids, mask = long_batch.padded()
    for recorded in (None, True):  # recorded attentions are the definition's
        model = builder(member, **fields_of(kind)).train()
        model(
            input_ids=ids,
            attention_mask=mask,
            labels=ids.masked_fill(mask == 0, -100),
            output_attentions=recorded,
        ).loss.backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters()})
    assert set(lengths_by_blocks) == {*LENGTHS[:2]}
    assert_close(gradients[0], gradients[1], rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("kind", SPARSE)
def test_weights_are_dropped_and_biases_added_by_the_map_of_all_pairs(
    kind, builder, long_batch, lengths_by_blocks
):
    ids, mask = long_batch.padded()
    builder("encoder", attention_dropout=0.1, **fields_of(kind)).train()(ids, mask)
    biased = builder("encoder", "alibi", **fields_of(kind))
    packed = biased(**long_batch.packed()).logits[0]
    assert not lengths_by_blocks
    assert_close(packed, biased(ids, mask).logits[mask.bool()], rtol=1e-4, atol=1e-4)


class LargestTensor(TorchDispatchMode):
    """Keeps the number of elements of the largest tensor that is computed."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **kwargs or {})
        tensors = (leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
        self.numel = max(self.numel, *(each.numel() for each in tensors), 0)
        return result


@pytest.mark.parametrize("member", ["encoder", "decoder"])
@torch.no_grad()
def test_no_map_of_all_pairs_is_made_for_some_positions(member, builder, long_batch, monkeypatch):
    monkeypatch.setattr(sparse, "ROWS_BYTES", 1)
    model, (ids, mask) = builder(member, **fields_of("big_bird_attention")).model, long_batch.padded("left")
    for inputs in ((ids[:1], mask[:1]), (ids, mask)):
        with LargestTensor() as largest:
            model(*inputs, output_positions=torch.tensor([ids.shape[1] - 1]))
        assert largest.numel < ids.shape[1] ** 2


def test_states_between_layers_and_positions_to_return_are_those_of_the_definition(builder, long_batch):
    model = builder("encoder", **fields_of("big_bird_attention"))
    ids, mask = long_batch.padded()
    states = model.model(ids, mask).last_hidden_state
    recorded = model.model(ids, mask, output_hidden_states=True).last_hidden_state
    assert_close(states[mask.bool()], recorded[mask.bool()], rtol=1e-4, atol=1e-4)
    positions = torch.tensor([2, 299, 301])
    for inputs in ((ids, mask), (ids[:2, :280], None)):
        whole = model.model(*inputs).last_hidden_state.flatten(0, 1)[positions]
        some = model.model(*inputs, output_positions=positions).last_hidden_state[0]
        assert_close(some, whole, rtol=1e-4, atol=1e-4)


CACHED = FIELDS | {"num_key_value_heads": 2}


GREEDY = {"do_sample": False, "max_new_tokens": 3, "eos_token_id": None, "pad_token_id": 0}


CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(params=SPARSE)
def build(request, builder):
    """Build members whose first layer has a sparse pattern."""

    def build_sparse(member, kernel="sdpa", **fields):
        fields = CACHED | {"layer_types": [request.param, "full_attention"]} | fields
        return builder(member, kernel=kernel, **fields)

    return build_sparse


def write(model, ids, mask=None, **options):
    """Generate from prompts greedily: the ids, and the scores of each new token."""
    outputs = model.generate(
        ids,
        attention_mask=torch.ones_like(ids) if mask is None else mask,
        return_dict_in_generate=True,
        output_scores=True,
        **GREEDY | options,
    )
    return outputs.sequences, torch.stack(outputs.scores, 1)


def static_cache(model, length=420):
    """Make an empty static cache."""
    return StaticCache(config=model.config, max_cache_len=length)


@pytest.mark.parametrize("implementation", ["dynamic", "static"])
@pytest.mark.parametrize("length", [319, 320, 321])
def test_generation_equals_that_without_a_cache_and_the_definition(
    length, implementation, build, lengths_by_blocks
):
    model = build("decoder")
    ids = torch.stack(ragged(length, length).sequences)
    cached = write(model, ids, cache_implementation=implementation)
    assert lengths_by_blocks == [length]
    definition = build("decoder", "eager", output_attentions=True)
    for expected in (write(model, ids, use_cache=False), write(definition, ids)):
        assert torch.equal(cached[0], expected[0])
        assert_close(cached[1], expected[1], **CLOSE)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("new_cache", [lambda model: DynamicCache(config=model.config), static_cache])
def test_padded_prompts_and_what_follows_them_have_the_logits_of_the_definition(
    new_cache, kernel, side, build, lengths_by_blocks
):
    model, definition = build("decoder", kernel), build("decoder", "eager")
    batch = ragged(*LENGTHS)
    ids, mask = batch.padded(side)
    cache = new_cache(model)
    logits = model(ids, mask, past_key_values=cache).logits[mask.bool()]
    assert sorted(lengths_by_blocks) == sorted(LENGTHS[:2])
    expected = definition(ids, mask, output_attentions=True, use_cache=False).logits[mask.bool()]
    assert_close(logits, expected, **CLOSE)

    new = torch.stack(ragged(4, 4, 4, seed=1).sequences)
    ids, mask = torch.cat([ids, new], 1), torch.cat([mask, torch.ones_like(new)], 1)
    logits = model(new, mask, past_key_values=cache).logits
    expected = definition(ids, mask, output_attentions=True, use_cache=False).logits[:, -4:]
    assert_close(logits, expected, **CLOSE)


def test_no_mask_of_all_pairs_is_made_of_a_long_prompt(build, monkeypatch):
    model, sizes = build("decoder"), []
    for pattern in model.model.patterns.values():

        def spy(config, x, *arguments, build_mask=pattern.build_mask):
            sizes.append(x.shape[1])
            return build_mask(config, x, *arguments)

        monkeypatch.setattr(pattern, "build_mask", spy)
    ids, mask = ragged(*LENGTHS).padded("left")
    for implementation in ("dynamic", "static"):
        write(model, ids, mask, cache_implementation=implementation)
    assert set(sizes) == {1}


def test_beams_are_those_without_a_cache(build, lengths_by_blocks):
    model = build("decoder")
    ids, mask = ragged(*LENGTHS).padded("left")
    cached, _ = write(model, ids, mask, num_beams=2)
    assert lengths_by_blocks
    assert torch.equal(cached, write(model, ids, mask, num_beams=2, use_cache=False)[0])


def test_prompts_in_chunks_are_those_in_one_pass(build, lengths_by_blocks):
    model = build("decoder")
    ids, mask = ragged(400, 330).padded("left")
    whole = write(model, ids, mask)
    lengths_by_blocks.clear()
    in_chunks = write(model, ids, mask, prefill_chunk_size=300)
    assert lengths_by_blocks == [300]  # later chunks, behind a cache that is not empty, by all pairs
    assert torch.equal(in_chunks[0], whole[0])
    assert_close(in_chunks[1], whole[1], **CLOSE)


def test_the_first_chunk_may_be_nothing_but_pads_in_a_row(build):
    model = build("decoder")
    ids, mask = ragged(*LENGTHS).padded("left")
    in_chunks, whole = write(model, ids, mask, prefill_chunk_size=300), write(model, ids, mask)
    assert torch.equal(in_chunks[0], whole[0])
    assert_close(in_chunks[1], whole[1], **CLOSE)


def test_prompts_with_holes_are_computed_by_all_pairs(build, lengths_by_blocks):
    model = build("decoder")
    ids = torch.stack(ragged(300).sequences)
    mask = torch.ones_like(ids)
    mask[:, 100:110] = 0
    cached = write(model, ids, mask)
    assert not lengths_by_blocks
    assert torch.equal(cached[0], write(model, ids, mask, use_cache=False)[0])


# The masks of a static cache tell no positions, which targets with pads would need.
@pytest.mark.parametrize(
    ("implementation", "lengths", "by_blocks"),
    [
        ("dynamic", (310, 400), [310, 400]),
        ("dynamic", (310, 310), [311]),  # behind a start token
        ("static", (310, 310), [311]),
        ("static", (310, 400), []),
    ],
)
def test_long_targets_and_their_source_are_cached(
    implementation, lengths, by_blocks, build, lengths_by_blocks
):
    model = build("seq2seq")
    (source, source_mask), (target, target_mask) = ragged(30, 9).padded(), ragged(*lengths).padded("left")
    options = {"decoder_input_ids": target}
    if not target_mask.all():
        options["decoder_attention_mask"] = target_mask
    cached = write(model, source, source_mask, cache_implementation=implementation, **options)
    assert sorted(lengths_by_blocks) == by_blocks
    uncached = write(model, source, source_mask, use_cache=False, **options)
    assert torch.equal(cached[0], uncached[0])
    assert_close(cached[1], uncached[1], **CLOSE)


def test_a_cache_that_has_the_source_alone_is_not_empty(build, lengths_by_blocks):
    model = build("seq2seq")
    (source, source_mask), target = ragged(30, 9).padded(), torch.stack(ragged(300, 300).sequences)
    inputs = {"input_ids": source, "attention_mask": source_mask}
    cache = EncoderDecoderCache(DynamicCache(config=model.config), DynamicCache(config=model.config))
    model(**inputs, decoder_input_ids=target[:, :20], past_key_values=cache)
    cache.self_attention_cache = DynamicCache(config=model.config)
    logits = model(**inputs, decoder_input_ids=target, past_key_values=cache).logits
    assert not lengths_by_blocks
    assert_close(logits, model(**inputs, decoder_input_ids=target, use_cache=False).logits, **CLOSE)


def test_a_cache_keeps_keys_where_the_padded_batch_has_them(build):
    model = build("decoder")
    ids, mask = ragged(*LENGTHS).padded("left")
    found = model(ids, mask).past_key_values
    expected = model(ids, mask, output_hidden_states=True).past_key_values  # by all pairs
    for layer, by_pairs in zip(found.layers, expected.layers, strict=True):
        is_token = mask[:, -layer.keys.shape[2] :].bool()
        for ours, theirs in ((layer.keys, by_pairs.keys), (layer.values, by_pairs.values)):
            ours, theirs = ours.transpose(1, 2), theirs.transpose(1, 2)
            assert_close(ours[is_token], theirs[is_token], **CLOSE)
            assert not ours[~is_token].any()


def test_gradients_through_a_cache_are_those_of_one_pass(build, lengths_by_blocks):
    ids, mask = ragged(400, 330).padded("left")
    gradients = []
    for beginning in (300, 0):
        model = build("decoder")
        cache = model(ids[:, :beginning], mask[:, :beginning]).past_key_values if beginning else None
        logits = model(ids[:, beginning:], mask, past_key_values=cache).logits[:, -100:]
        cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, -99:].flatten()).backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters()})
    assert set(lengths_by_blocks) == {300, 400, 330}
    assert_close(gradients[0], gradients[1], rtol=1e-3, atol=2e-5)


def test_a_cache_is_empty_until_it_is_filled_and_again_when_it_is_reset(build):
    model, ids = build("decoder"), torch.stack(ragged(5).sequences)
    assert is_empty(None)
    for cache in (DynamicCache(config=model.config), static_cache(model, 20)):
        assert is_empty(cache)
        model(ids, past_key_values=cache)
        assert not is_empty(cache)
        cache.reset()
        assert is_empty(cache) == (int(cache.get_seq_length()) == 0)  # a dynamic one keeps its length on 5.17


def test_a_graph_or_another_device_does_not_tell_that_a_cache_is_empty():
    class Elsewhere(DynamicCache):
        def get_seq_length(self, layer_idx=0) -> Any:
            return torch.zeros((), device="meta")

    assert not is_empty(Elsewhere())
    assert not torch.compile(lambda x: x + is_empty(DynamicCache()), backend="eager")(torch.zeros(()))
