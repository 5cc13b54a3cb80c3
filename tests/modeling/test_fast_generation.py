"""What makes `generate` fast changes nothing of what it gives: transformers' own is the definition.

A cache that grows in place holds what one does that concatenates.
"""

import copy
from functools import wraps

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.testing import assert_close
from transformers import GenerationMixin, LogitsProcessor, StoppingCriteria
from transformers.cache_utils import (
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    EncoderDecoderCache,
    StaticCache,
)

from tercet.modeling import TercetDecoderForCausalLM
from tercet.modeling.generation import prepacked_weights as blocks
from tercet.modeling.generation.decoding import (
    MIN_SPARE_POSITIONS,
    GrowingLayer,
    TercetGenerativeModel,
    grows,
    make_growing,
)

from ..tolerances import CLOSE

GREEDY = {"do_sample": False, "max_new_tokens": 7, "eos_token_id": None}


class Favour(LogitsProcessor):
    """Prefer tokens that are divisible by the number of tokens so far."""

    def __call__(self, input_ids, scores):
        return scores + (torch.arange(scores.shape[-1]) % input_ids.shape[-1] == 0)


class Enough(StoppingCriteria):
    """Stop a sequence behind a token that is divisible by three."""

    def __call__(self, input_ids, scores, **kwargs):  # pyright: ignore[reportIncompatibleMethodOverride]
        return input_ids[:, -1] % 3 == 0


class Listener:
    def __init__(self):
        self.heard = []

    def put(self, tokens):
        self.heard.append(tokens.tolist())

    def end(self):
        self.heard.append("end")


OPTIONS = {
    "greedy": {},
    "ends": {"eos_token_id": [5, 11, 17, 23, 29, 35, 41, 47, 53], "pad_token_id": 0},
    "at least": {"eos_token_id": list(range(3, 61, 2)), "min_new_tokens": 3, "pad_token_id": 0},
    "processors": {"no_repeat_ngram_size": 1, "repetition_penalty": 1.3, "logits_processor": [Favour()]},
    "criteria": {"stopping_criteria": [Enough()], "pad_token_id": 0},
    "sampling": {"do_sample": True, "top_k": 20, "temperature": 0.8, "num_return_sequences": 2},
    "beams": {"num_beams": 3, "num_return_sequences": 2},
    "without cache": {"use_cache": False},
    "static cache": {"cache_implementation": "static"},
    "chunks": {"prefill_chunk_size": 2},
    "one token": {"max_new_tokens": 1},
}


@pytest.fixture(params=["decoder", "seq2seq"])
def member(request):
    """Run a test for both members that generate."""
    return request.param


@pytest.fixture
def steps(monkeypatch):
    """Count the steps that are taken without `forward`."""
    taken = []
    for model in TercetGenerativeModel.__subclasses__():
        step = model.decode_step

        @wraps(step)  # whose signature is read
        def counting(self, *args, step=step, **kwargs):
            taken.append(1)
            return step(self, *args, **kwargs)

        monkeypatch.setattr(model, "decode_step", counting)
    return taken


def both_ways(model, *args, **options):
    """Generate as ours does, and by the definition."""
    results = []
    for generate in (type(model).generate, GenerationMixin.generate):
        torch.manual_seed(0)
        results.append(generate(model, *args, **GREEDY | options))
    return results


def assert_same(model, *args, **options):
    ours, expected = both_ways(model, *args, **options)
    assert torch.equal(ours, expected)
    return ours


@pytest.mark.parametrize("kernel", ["sdpa", pytest.param("eager", marks=pytest.mark.slow)])
@pytest.mark.parametrize("side", ["left", None])
def test_every_variant_writes_the_same(steps, member, variant, kernel, side, builder, batch):
    ids, mask = batch.padded("left") if side else (torch.randint(3, 61, (3, 5)), None)
    assert_same(builder(member, variant, kernel), ids, attention_mask=mask, no_repeat_ngram_size=1)
    # Caches of sliding layers forget instead of growing, and masks by a map are built by `forward` alone.
    takes_steps = not variant.startswith(("sliding", "strided", "big_bird"))
    assert len(steps) == (GREEDY["max_new_tokens"] - 1 if takes_steps else 0)


@pytest.mark.parametrize("options", OPTIONS)
def test_every_option_means_the_same(member, options, builder, batch):
    if options == "chunks" and member == "seq2seq":
        pytest.skip("transformers cuts the prompts of decoders only")
    ids, mask = batch.padded("left")
    assert_same(builder(member), ids, attention_mask=mask, **OPTIONS[options])


def test_sequences_end_apart_and_are_padded(builder, batch):
    ids, mask = batch.padded("left")
    written = assert_same(builder("decoder"), ids, attention_mask=mask, **OPTIONS["ends"])[:, ids.shape[1] :]
    assert len((written != 0).sum(-1).unique()) > 1


def test_whole_answers_are_the_same(steps, member, builder, batch):
    ids, mask = batch.padded("left")
    ours, expected = both_ways(
        builder(member),
        ids,
        attention_mask=mask,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
    )
    assert steps
    assert type(ours) is type(expected)
    assert ours.keys() == expected.keys()
    assert torch.equal(ours.sequences, expected.sequences)
    assert_close(ours.scores, expected.scores, **CLOSE)
    assert_close(ours.logits, expected.logits, **CLOSE)
    assert type(ours.past_key_values) is type(expected.past_key_values)
    for mine, theirs in zip(ours.past_key_values, expected.past_key_values, strict=True):
        assert_close(mine[:2], theirs[:2], **CLOSE)


def test_tokens_are_streamed_as_they_come(member, builder):
    model, listeners = builder(member), (Listener(), Listener())
    for generate, listener in zip((type(model).generate, GenerationMixin.generate), listeners, strict=True):
        generate(
            model, torch.randint(3, 61, (1, 5), generator=torch.Generator()), streamer=listener, **GREEDY
        )
    assert listeners[0].heard == listeners[1].heard
    assert len(listeners[0].heard) == GREEDY["max_new_tokens"] + 2


def test_half_precision_steps_too(steps, member, builder):
    model = builder(member).to(torch.bfloat16)
    ours, expected = both_ways(
        model, torch.randint(3, 61, (2, 5)), return_dict_in_generate=True, output_logits=True
    )
    assert steps
    assert_close(ours.logits[:2], expected.logits[:2], rtol=0.1, atol=0.1)


def test_a_model_in_training_drops_as_ever(steps, member, builder):
    model = builder(member, attention_dropout=0.4, dropout=0.2).train()
    ids = torch.randint(3, 61, (2, 5))
    written = assert_same(model, ids)
    assert not steps
    assert not torch.equal(written, assert_same(model.eval(), ids))


class Subclass(TercetDecoderForCausalLM):
    """Somebody's own model."""

    def forward(self, *args, **kwargs):
        outputs = super().forward(*args, **kwargs)
        outputs.logits = outputs.logits.flip(-1)
        return outputs


def hook(model):
    model.model.register_forward_hook(lambda module, arguments, outputs: outputs)


def replace_forward(model):
    model.forward = model.forward


def replace_preparation(model):
    model.prepare_inputs_for_generation = model.prepare_inputs_for_generation


def override(model):
    model.__class__ = Subclass


ORDINARY = {
    "recorded states": {"return_dict_in_generate": True, "output_hidden_states": True},
    "a given cache": lambda model: {"past_key_values": DynamicCache(config=model.config)},
    "a given static cache": lambda model: {
        "past_key_values": StaticCache(config=model.config, max_cache_len=20)
    },
    "a hook": hook,
    "a replaced forward pass": replace_forward,
    "an overridden forward pass": override,
}


@pytest.mark.parametrize("reason", ORDINARY)
def test_what_only_the_forward_pass_can_do_is_left_to_it(steps, reason, builder):
    model, want = builder("decoder"), ORDINARY[reason]
    results = []
    for generate in (TercetDecoderForCausalLM.generate, GenerationMixin.generate):
        torch.manual_seed(0)
        ids = torch.randint(3, 61, (2, 5))
        options = want if isinstance(want, dict) else want(model) or {}
        written = generate(model, ids, **GREEDY | options)
        results.append(written if isinstance(written, torch.Tensor) else written.sequences)
    assert torch.equal(*results)
    assert not steps


STEPPED = {
    "beams": {"num_beams": 3},
    "vectors": lambda model: {"inputs_embeds": torch.randn(2, 5, 32)},
    "replaced preparation": replace_preparation,
    "a prompt in chunks": {"prefill_chunk_size": 2},
}


@pytest.mark.parametrize("strategy", STEPPED)
def test_whatever_the_strategy_tokens_behind_the_prompt_are_steps(steps, strategy, builder):
    model, want = builder("decoder"), STEPPED[strategy]
    torch.manual_seed(0)
    options = want if isinstance(want, dict) else want(model) or {}
    ids = torch.randint(3, 61, (2, 5))
    written = model.generate(ids, **GREEDY | options)
    assert steps
    assert torch.equal(written, GenerationMixin.generate(model, ids, **GREEDY | options))


def test_hooks_on_layers_and_blocks_are_called_in_every_step(steps, builder):
    model, calls = builder("decoder"), []
    for module in (model.lm_head, model.model.layers[0], model.model.layers[1].self_attention.k_proj):
        module.register_forward_hook(lambda *_: calls.append(1))
    assert_same(model, torch.randint(3, 61, (1, 5)))
    assert steps
    assert len(calls) == 2 * 3 * GREEDY["max_new_tokens"]


class Adapter(nn.Module):
    """What PEFT does to a layer."""

    def __init__(self, base_layer):
        super().__init__()
        self.base_layer = base_layer
        self.delta = nn.Parameter(torch.randn_like(base_layer.weight) / 4)

    def forward(self, x):
        return self.base_layer(x) + x @ self.delta.T


def test_adapted_layers_are_called(member, builder):
    model = builder(member)
    ids = torch.randint(3, 61, (2, 5))
    before = assert_same(model, ids)
    stack = model.model.decoder if member == "seq2seq" else model.model
    for layer in stack.layers:
        layer.self_attention.q_proj = Adapter(layer.self_attention.q_proj)
        layer.feed_forward.down_proj = Adapter(layer.feed_forward.down_proj)
    assert not torch.equal(assert_same(model, ids), before)


def test_generation_between_training_steps_uses_the_weights_of_the_day(member, builder):
    model = builder(member)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    ids, written = torch.randint(3, 61, (2, 5)), []
    for is_switched in (True, False, True):
        model.train(is_switched)
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        written.append(assert_same(model, ids))
    assert not torch.equal(written[0], written[-1])


def test_gradients_after_generation_are_those_before(builder):
    model, ids = builder("decoder"), torch.randint(3, 61, (2, 5))

    def gradients():
        model.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    expected = gradients()
    model.generate(ids, **GREEDY)
    assert all(map(torch.equal, gradients(), expected))


def test_what_is_saved_and_copied_after_generation_is_the_plain_model(member, builder, tmp_path):
    model = builder(member)
    model.save_pretrained(tmp_path / "before")
    model.generate(torch.randint(3, 61, (2, 5)), **GREEDY)
    assert len(blocks._kept[model].products) > 0
    model.save_pretrained(tmp_path / "after")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("before", "after"))
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert copy.deepcopy(model).state_dict().keys() == model.state_dict().keys()
    torch.save(model, tmp_path / "whole.pt")


def states(length: int, batch: int = 2, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw keys and values (B, 3, T, 4)."""
    keys, values = torch.randn(2, batch, 3, length, 4, generator=torch.Generator().manual_seed(seed))
    return keys, values


@pytest.fixture
def layer():
    """Give a layer behind a prompt of five tokens."""
    layer = GrowingLayer()
    with torch.no_grad():
        layer.update(*states(5))
    return layer


ALTERATIONS = {
    "nothing": lambda layer: None,
    "crop": lambda layer: layer.crop(-2),
    "reorder": lambda layer: layer.reorder_cache(torch.tensor([1, 0])),
    "repeat": lambda layer: layer.batch_repeat_interleave(2),
    "select": lambda layer: layer.batch_select_indices(torch.tensor([1])),
}


@pytest.mark.parametrize("steps", [1, 3, MIN_SPARE_POSITIONS + 20])
@pytest.mark.parametrize("alteration", ALTERATIONS)
@torch.no_grad()
def test_it_holds_what_a_concatenating_one_does(alteration, steps):
    layers = [DynamicLayer(), GrowingLayer()]
    for layer in layers:
        layer.update(*states(5))
        layer.update(*states(1, seed=1))
        ALTERATIONS[alteration](layer)
        for step in range(steps):
            shown = layer.update(*states(1, batch=len(layer.keys), seed=step))
            assert shown[0] is layer.keys
    assert torch.equal(layers[0].keys, layers[1].keys)
    assert torch.equal(layers[0].values, layers[1].values)
    assert layers[0].get_seq_length() == layers[1].get_seq_length()


@torch.no_grad()
def test_a_step_moves_nothing_while_there_is_room(layer):
    place = layer.keys.data_ptr()
    for _ in range(MIN_SPARE_POSITIONS):
        layer.update(*states(1))
    assert layer.keys.data_ptr() == place
    layer.update(*states(1))
    assert layer.keys.data_ptr() != place


@torch.no_grad()
def test_what_was_shown_stays_as_it_was(layer):
    shown = layer.update(*states(3, seed=1))[0]
    expected = shown.clone()
    layer.crop(-3)
    layer.update(*states(3, seed=2))
    assert torch.equal(shown, expected)


@torch.no_grad()
def test_a_copy_goes_its_own_way(layer):
    other = copy.deepcopy(layer)
    layer.update(*states(1, seed=1))
    other.update(*states(1, seed=2))
    assert torch.equal(layer.keys[..., -1:, :], states(1, seed=1)[0])
    assert torch.equal(other.keys[..., -1:, :], states(1, seed=2)[0])
    assert torch.equal(layer.keys[..., :-1, :], other.keys[..., :-1, :])


def test_gradients_find_what_they_need(layer):
    first, second = (tuple(x.requires_grad_() for x in states(1, seed=seed)) for seed in (1, 2))
    product = (layer.update(*first)[0] ** 2).sum()
    layer.update(*second)
    product.backward()
    torch.testing.assert_close(first[0].grad, 2 * first[0])


def test_only_new_dynamic_caches_are_let_grow(builder):
    config = builder("decoder").config
    pair = EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
    static = StaticCache(config=config, max_cache_len=8)
    for cache in (None, static, pair):
        make_growing(cache)
    assert grows(pair)
    assert type(pair.cross_attention_cache.layers[0]) is DynamicLayer
    assert not grows(static)
    assert not grows(DynamicCache(config=config))
    assert not grows(None)


def test_layers_that_forget_do_not_grow(builder):
    cache = DynamicCache(config=builder("decoder", "sliding").config)
    make_growing(cache)
    assert [type(layer) for layer in cache.layers] == [DynamicSlidingWindowLayer, GrowingLayer]
    assert not grows(cache)


def test_what_was_written_for_inference_can_be_continued_outside():
    layer, plain = GrowingLayer(), DynamicLayer()
    for number, mode in enumerate((torch.inference_mode, torch.no_grad, torch.no_grad)):
        for one in (layer, plain):
            with mode():
                one.update(*states(2, seed=number))
    assert torch.equal(layer.keys, plain.keys)
