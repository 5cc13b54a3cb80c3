"""Copies of channels, heads and layers, by hand and by their statistics."""

import pytest
import torch
from torch.testing import assert_close

from tercet.conversion.growth import Copies, copied_heads, layer_origins, repeated


def test_noise_has_its_size():
    torch.manual_seed(0)
    weight = torch.randn(200, 100)
    copies = repeated(200, 100)
    drawn = copies.read(weight, noise=0.5) - copies.read(weight)
    # Half of a pair's noise is its mean, which is taken away: the variance of what is left is a half.
    expected = 0.5 * copies.read(weight).std() * 0.5**0.5
    assert drawn.std() == pytest.approx(float(expected), rel=3 * (2 * 200 * 100) ** -0.5)
    assert_close(drawn[:, :100], -drawn[:, 100:])


def test_reading_weights_are_divided_among_copies_by_hand():
    copies = Copies(torch.tensor([0, 1, 0]))
    assert copies.read(torch.tensor([[6.0, 5.0]])).tolist() == [[3.0, 5.0, 3.0]]
    assert copies.written(torch.tensor([6.0, 5.0]), 0).tolist() == [6.0, 5.0, 6.0]


def test_heads_that_meet_have_met_before_by_hand():
    queries, keys = copied_heads(8, 2, 4, 2)
    assert keys.origins.tolist() == [0, 1]
    assert queries.origins.tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    queries, keys = copied_heads(8, 4, 4, 2)
    assert keys.origins.tolist() == [0, 1, 0, 1]
    assert queries.origins.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]


def test_layers_are_copied_evenly_and_in_order():
    assert layer_origins(8, 4) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert layer_origins(4, 4) == [0, 1, 2, 3]
    assert layer_origins(5, 3) == [0, 0, 1, 1, 2]
