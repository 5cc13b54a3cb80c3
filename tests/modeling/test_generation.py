"""Decoding: with a cache and without, alone and in padded batches, by every strategy.

Caches: what they hold, and that a text can be read and written on from any place.

A translator is given the cache of a decoder: what it reads of its source is kept beside it.
"""

import pytest
import torch
from torch.testing import assert_close
from transformers import CompileConfig
from transformers.cache_utils import DynamicCache, EncoderDecoderCache, StaticCache

from ..tolerances import CLOSE

GREEDY = {"do_sample": False, "max_new_tokens": 6, "eos_token_id": None}


@pytest.fixture(params=["modern", "sliding"])
def kind(request) -> str:
    """Remember everything, or in some layers only what is near."""
    return request.param


@pytest.fixture(params=["decoder", "seq2seq"])
def generator(request, kind, builder):
    return builder(request.param, kind)


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_cached_decoding_equals_one_parallel_pass(variant, kernel, builder):
    model = builder("decoder", variant, kernel)
    ids = torch.randint(3, 61, (2, 9))
    cache = DynamicCache(config=model.config)
    steps = [model(input_ids=ids[:, :4], past_key_values=cache, use_cache=True).logits]
    steps += [
        model(input_ids=ids[:, t : t + 1], past_key_values=cache, use_cache=True).logits for t in range(4, 9)
    ]
    assert_close(torch.cat(steps, dim=1), model(input_ids=ids).logits, **CLOSE)


def test_cached_decoding_of_a_padded_batch_equals_each_sequence_alone(variant, builder, batch):
    model = builder("decoder", variant)
    ids, mask = batch.padded("left")
    cache = DynamicCache(config=model.config)
    model(input_ids=ids[:, :-1], attention_mask=mask[:, :-1], past_key_values=cache, use_cache=True)
    last = model(input_ids=ids[:, -1:], attention_mask=mask, past_key_values=cache, use_cache=True).logits[
        :, -1
    ]
    alone = torch.cat([model(input_ids=row[None]).logits[:, -1] for row in batch.sequences])
    assert_close(last, alone, **CLOSE)


def test_cached_translation_equals_one_parallel_pass(variant, builder, batch):
    model = builder("seq2seq", variant)
    source, mask = batch.padded("right")
    target = torch.randint(3, 61, (5, 6))
    cache = EncoderDecoderCache(DynamicCache(config=model.config), DynamicCache(config=model.config))
    encoded = model.get_encoder()(input_ids=source, attention_mask=mask)
    steps = [
        model(
            encoder_outputs=encoded,
            attention_mask=mask,
            decoder_input_ids=target[:, t : t + 1],
            past_key_values=cache,
            use_cache=True,
        ).logits
        for t in range(6)
    ]
    whole = model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    assert_close(torch.cat(steps, dim=1), whole, **CLOSE)


def test_greedy_decoding_is_the_repeated_argmax(generator, batch):
    ids = batch.sequences[0][None]
    generated = generator.generate(ids, **GREEDY)
    is_decoder = not generator.config.is_encoder_decoder
    written = ids if is_decoder else torch.zeros(1, 1, dtype=torch.long)
    for _ in range(6):
        inputs = {"input_ids": written} if is_decoder else {"input_ids": ids, "decoder_input_ids": written}
        written = torch.cat((written, generator(**inputs).logits[:, -1:].argmax(-1)), dim=1)
    assert torch.equal(generated, written)


def test_beams_are_those_without_a_cache(generator, batch):
    ids = batch.sequences[0][None]
    beams = generator.generate(ids, num_beams=4, **GREEDY)
    assert torch.equal(generator.generate(ids, num_beams=4, use_cache=False, **GREEDY), beams)


@pytest.mark.parametrize("cache", ["static", "dynamic"])
@pytest.mark.parametrize("variant", ["modern", "t5", "sliding_t5"])
@pytest.mark.parametrize("member", ["decoder", "seq2seq"])
def test_padded_batches_generate_what_each_sequence_does(member, variant, cache, builder, batch):
    generator = builder(member, variant)
    ids, mask = batch.padded("left")
    together = generator.generate(ids, attention_mask=mask, cache_implementation=cache, **GREEDY)[:, -6:]
    alone = torch.cat([generator.generate(row[None], **GREEDY)[:, -6:] for row in batch.sequences])
    assert torch.equal(together, alone)


@pytest.mark.parametrize("variant", ["modern", "qwen", "primer", "t5", "sliding", "sliding_t5"])
def test_static_caches_equal_growing_ones(variant, builder):
    model = builder("decoder", variant)
    ids = torch.randint(3, 61, (1, 7))
    cache = StaticCache(config=model.config, max_cache_len=16)
    parts = [
        model(input_ids=part, past_key_values=cache, use_cache=True).logits
        for part in ids.split([4, 2, 1], dim=1)
    ]
    assert_close(torch.cat(parts, dim=1), model(input_ids=ids).logits, **CLOSE)


@pytest.mark.parametrize(
    ("member", "variant", "number"),
    [
        ("decoder", "modern", 1),
        ("seq2seq", "modern", 1),
        pytest.param("decoder", "sliding", 2, marks=pytest.mark.slow),  # another when the window is full
    ],
)
def test_graphs_of_a_static_cache_decode_all_tokens(member, variant, number, builder, batch):
    """On a GPU they are what `generate` takes by default."""
    generator, graphs = builder(member, variant), []

    def backend(graph, inputs, **_):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = CompileConfig(backend=backend, fullgraph=True)
    compiled._compile_all_devices = True
    ids, mask = batch.padded("left")
    expected = generator.generate(ids, attention_mask=mask, **GREEDY)
    options = GREEDY | {"cache_implementation": "static", "compile_config": compiled}
    for _ in range(2):
        assert torch.equal(generator.generate(ids, attention_mask=mask, **options), expected)
        assert len(graphs) == number


def test_stacks_of_different_depth_generate(builder):
    model = builder(
        "seq2seq", num_hidden_layers=1, decoder_num_hidden_layers=3, decoder_num_attention_heads=2
    )
    ids = torch.randint(3, 61, (2, 5))
    with_cache = model.generate(ids, **GREEDY)
    assert torch.equal(model.generate(ids, use_cache=False, **GREEDY), with_cache)
    assert torch.equal(model.generate(ids, cache_implementation="static", **GREEDY), with_cache)


def test_the_source_is_projected_once(builder):
    model = builder("seq2seq")
    calls = []
    for block in model.model.decoder.layers:
        block.cross_attention.k_proj.register_forward_hook(lambda *_: calls.append(1))
    model.generate(torch.randint(3, 61, (1, 5)), **GREEDY)
    assert len(calls) == len(model.model.decoder.layers)


@pytest.mark.parametrize("prompt", [{}, {"decoder_input_ids": torch.tensor([[1, 5, 6, 7, 8]] * 5)}])
def test_chunks_of_a_target_are_refused(prompt, builder, batch):
    ids, mask = batch.padded()
    with pytest.raises(ValueError, match=r"prefill_chunk_size is 2, .* decoders only, .* leave it out"):
        builder("seq2seq").generate(
            ids, attention_mask=mask, prefill_chunk_size=2, max_new_tokens=3, **prompt
        )


UNENDING = {"do_sample": False, "eos_token_id": None}


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
    first = model.generate(ids, max_new_tokens=3, return_dict_in_generate=True, **UNENDING)
    past = first.past_key_values
    second = model.generate(first.sequences, past_key_values=past, max_new_tokens=4, **UNENDING)
    assert torch.equal(second, model.generate(ids, max_new_tokens=7, **UNENDING))


@pytest.mark.parametrize("options", [{}, {"use_cache": False}, {"cache_implementation": "static"}], ids=str)
def test_vectors_are_prompts_too(options, generator):
    """Of what is written behind vectors, only the new is returned."""
    ids = torch.randint(3, 61, (2, 5))
    vectors = generator.get_input_embeddings()(ids).detach()
    expected = generator.generate(ids, max_new_tokens=4, **UNENDING)
    found = generator.generate(inputs_embeds=vectors, max_new_tokens=4, **UNENDING, **options)
    assert torch.equal(found[:, -4:], expected[:, -4:])


SEVEN = {"do_sample": False, "max_new_tokens": 7, "eos_token_id": None}


def test_a_cache_of_the_target_alone_gets_one_of_the_source(builder):
    model, ids = builder("seq2seq"), torch.randint(3, 61, (2, 5))
    kept = {"config": model.get_decoder().config}
    caches = (DynamicCache, lambda: DynamicCache(**kept), lambda: StaticCache(**kept, max_cache_len=16))
    for make in caches:
        for options in (SEVEN, SEVEN | {"num_beams": 2}):
            found = model.generate(ids, past_key_values=make(), **options)
            assert torch.equal(found, model.generate(ids, **options))
        outputs = model(ids, decoder_input_ids=ids[:, :3], past_key_values=make())
        more = model(ids, decoder_input_ids=ids[:, 3:], past_key_values=outputs.past_key_values)
        whole = model(ids, decoder_input_ids=ids).logits
        assert_close(torch.cat([outputs.logits, more.logits], dim=1), whole, **CLOSE)
