"""Weights that have changed are prepacked again, however they have changed."""

import pytest
import torch
from torch import nn

from tercet.modeling.generation.prepacked_weights import checksum

from .test_prepacked_weights import Layers, assert_products_are_those_of_the_layers, products


def add_in_place(layer):
    layer.weight.data[3, 5] += 1


def step(layer):
    layer.weight.grad = torch.ones_like(layer.weight)
    torch.optim.SGD([layer.weight], 1e-3).step()


def exchange_rows(layer):
    layer.weight.data = layer.weight.data.flip(0)


def replace(layer):
    layer.weight = nn.Parameter(layer.weight.detach() * 2)


def shift(layer):
    layer.bias.data += 1


def exchange_columns_unseen(layer):
    layer.weight.data = layer.weight.data[:, torch.arange(layer.weight.shape[1]).roll(4)]


def exchange_columns_in_place_unseen(layer):
    layer.weight.data.copy_(layer.weight.data.roll(4, dims=-1))


def exchange_biases(layer):
    layer.bias.data = layer.bias.data.flip(0)


@torch.no_grad()
def exchange_columns(layer):
    layer.weight.copy_(layer.weight.roll(8, dims=1))


@torch.no_grad()
def flip_two_signs(layer):
    layer.weight[:, [1, 3]] *= -1


def shrink(layer):
    layer.weight = nn.Parameter(layer.weight[:7].detach())
    layer.bias = nn.Parameter(layer.bias[:7].detach())


@pytest.mark.parametrize(
    "change",
    [
        add_in_place,
        step,
        exchange_rows,
        exchange_columns,
        exchange_columns_unseen,
        exchange_columns_in_place_unseen,
        exchange_biases,
        flip_two_signs,
        replace,
        shift,
        shrink,
    ],
)
def test_changed_weights_are_cut_again(change):
    torch.manual_seed(0)
    model = Layers([nn.Linear(24, width) for width in (16, 8, 40)]).eval()
    x = torch.randn(2, 3, 24)
    products(model, x)
    change(model[1])
    assert_products_are_those_of_the_layers(model, x)


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_checksums_see_every_element_of_odd_rows(width, dtype):
    weight = torch.ones(2, width, dtype=dtype)
    before = checksum(weight)
    for column in range(width):
        changed = weight.clone()
        changed[1, column] = 1.5
        assert not torch.equal(checksum(changed), before)
