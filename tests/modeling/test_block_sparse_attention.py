"""Sparse patterns by blocks: the same numbers as by the map of all pairs, in linear memory."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tercet.modeling import TercetEncoderConfig
from tercet.modeling.attention import dot_product as sparse
from tercet.modeling.attention.patterns import PATTERNS

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


@pytest.mark.parametrize("kind", SPARSE)
def test_generation_goes_on_as_without_a_cache(kind, builder, long_batch):
    model = builder("decoder", **fields_of(kind))
    ids, mask = long_batch.padded("left")
    options = {"attention_mask": mask, "max_new_tokens": 3, "do_sample": False, "eos_token_id": None}
    cached = model.generate(ids, pad_token_id=0, **options)
    assert torch.equal(cached, model.generate(ids, pad_token_id=0, use_cache=False, **options))
