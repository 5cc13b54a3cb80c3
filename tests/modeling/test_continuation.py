"""Caches: what they hold, and that a text can be read and written on from any place."""

import pytest
import torch
from torch.testing import assert_close
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

CLOSE = {"rtol": 1e-4, "atol": 2e-5}
GREEDY = {"do_sample": False, "eos_token_id": None}


@pytest.fixture(params=["decoder", "seq2seq"])
def writer(request, variant, builder):
    """Give a model that writes, in every variant."""
    return builder(request.param, variant)


def test_a_cache_has_keys_and_values_for_each_head_and_token(writer):
    ids = torch.randint(3, 61, (2, 5))
    reads_source = writer.config.is_encoder_decoder
    inputs = {"decoder_input_ids": ids[:, :2]} if reads_source else {}
    cache = writer(input_ids=ids, use_cache=True, **inputs).past_key_values
    config = writer.config.get_text_config(decoder=True)
    parts = {2: cache.self_attention_cache, 5: cache.cross_attention_cache} if reads_source else {5: cache}
    assert type(cache) is (EncoderDecoderCache if reads_source else DynamicCache)
    for length, part in parts.items():
        assert part.get_seq_length() == length
        assert len(part.layers) == config.num_hidden_layers
        for layer, kind in zip(part.layers, config.types_of_layers, strict=True):
            # What lies before the window is forgotten, except of a source.
            is_near = kind == "sliding_attention" and part is not getattr(
                cache, "cross_attention_cache", None
            )
            kept = min(length, config.sliding_window - 1) if is_near else length
            expected = (2, config.num_key_value_heads, kept, config.head_dim)
            assert layer.keys.shape == layer.values.shape == expected


def test_writing_goes_on_behind_what_is_cached(variant, builder):
    """What is written in two goes is what is written in one."""
    model, ids = builder("decoder", variant), torch.randint(3, 61, (2, 5))
    first = model.generate(ids, max_new_tokens=3, return_dict_in_generate=True, **GREEDY)
    past = first.past_key_values
    second = model.generate(first.sequences, past_key_values=past, max_new_tokens=4, **GREEDY)
    assert torch.equal(second, model.generate(ids, max_new_tokens=7, **GREEDY))


@pytest.mark.parametrize("options", [{}, {"use_cache": False}, {"cache_implementation": "static"}], ids=str)
def test_vectors_are_prompts_too(options, writer):
    """Of what is written behind vectors, only the new is returned."""
    ids = torch.randint(3, 61, (2, 5))
    vectors = writer.get_input_embeddings()(ids).detach()
    expected = writer.generate(ids, max_new_tokens=4, **GREEDY)
    found = writer.generate(inputs_embeds=vectors, max_new_tokens=4, **GREEDY, **options)
    assert torch.equal(found[:, -4:], expected[:, -4:])


def test_a_beginning_is_all_that_a_decoder_needs(builder):
    model = builder("decoder")
    begun = model.generate(torch.full((1, 1), 5), max_new_tokens=4, **GREEDY)
    assert torch.equal(model.generate(bos_token_id=5, max_new_tokens=4, **GREEDY), begun)


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_a_mask_of_pairs_lets_texts_share_their_beginning(kernel, builder):
    """Three continuations of one prompt, read in one row, are those of three rows."""
    model = builder("decoder", kernel=kernel)
    prompt, ends = torch.randint(3, 61, (1, 4)), torch.randint(3, 61, (3, 1))
    alone = model(input_ids=torch.cat((prompt.expand(3, -1), ends), dim=1)).logits[:, -1]
    ids = torch.cat((prompt, ends.T), dim=1)
    may_read = torch.ones(7, 7).tril().bool()
    may_read[4:, 4:] = torch.eye(3).bool()
    mask = may_read[None, None]
    if kernel == "eager":
        mask = torch.zeros(1, 1, 7, 7).masked_fill(~mask, torch.finfo(torch.float32).min)
    positions = torch.tensor([[0, 1, 2, 3, 4, 4, 4]])
    together = model(input_ids=ids, attention_mask=mask, position_ids=positions).logits[0, 4:]
    assert_close(together, alone, **CLOSE)
