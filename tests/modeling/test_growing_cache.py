"""A cache that grows in place holds what one does that concatenates."""

import copy

import pytest
import torch
from transformers.cache_utils import (
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    EncoderDecoderCache,
    StaticCache,
)

from tercet.modeling.generation.decoding import MIN_SPARE_POSITIONS, GrowingLayer, grows, make_growing


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
