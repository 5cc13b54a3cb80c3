"""Long prompts of sparse patterns: an empty cache is filled by blocks, with what all pairs would give."""

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close
from transformers.cache_utils import DynamicCache, EncoderDecoderCache, StaticCache

from tercet.modeling.attention.packing import is_empty

from .ragged import ragged

FIELDS = {
    "sliding_window": 40,
    "attention_block_size": 8,
    "attention_window_blocks": 2,
    "attention_global_tokens": 5,
    "attention_random_blocks": 2,
    "max_position_embeddings": 512,
    "num_key_value_heads": 2,
}
SPARSE = ["sliding_attention", "big_bird_attention"]
GREEDY = {"do_sample": False, "max_new_tokens": 3, "eos_token_id": None, "pad_token_id": 0}
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
LENGTHS = (400, 330, 40)
"""Of prompts, the longest of which are sparse; one is not."""


@pytest.fixture(params=SPARSE)
def build(request, builder):
    """Build members whose first layer has a sparse pattern."""

    def build_sparse(member, kernel="sdpa", **fields):
        fields = FIELDS | {"layer_types": [request.param, "full_attention"]} | fields
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
    build_masks = model.model.build_masks

    def spy(x, *arguments):
        sizes.append(x.shape[1])
        return build_masks(x, *arguments)

    monkeypatch.setattr(model.model, "build_masks", spy)
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
        assert is_empty(cache)


def test_a_graph_or_another_device_does_not_tell_that_a_cache_is_empty():
    class Elsewhere(DynamicCache):
        def get_seq_length(self, layer_idx=0) -> Any:
            return torch.zeros((), device="meta")

    assert not is_empty(Elsewhere())
    assert not torch.compile(lambda x: x + is_empty(DynamicCache()), backend="eager")(torch.zeros(()))
