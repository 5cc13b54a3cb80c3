"""Dropout drawn from sixteen bits: what it keeps, what it scales, and whose seed it follows."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from tercet.modeling.layers.position_wise import LEVELS, Dropout, draw_kept, drop


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_elements_are_dropped_at_the_given_rate_and_the_others_scaled(dtype, probability):
    torch.manual_seed(0)
    x = torch.ones(1000, 101, dtype=dtype)  # not a multiple of the four that a draw gives
    y = drop(x, probability)
    assert y.dtype == dtype
    deviation = (probability * (1 - probability) / x.numel()) ** 0.5
    assert abs((y == 0).double().mean() - probability) < 3 * deviation
    assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / (1 - probability)), rtol=1e-4, atol=0)
    rates = (y == 0).double().mean(dim=0)  # no column is special
    assert (rates - probability).abs().max() < 5 * (probability * (1 - probability) / 1000) ** 0.5


def test_the_factor_keeps_the_expectation():
    for probability in (1e-6, 0.1, 1 / 3, 0.999_999):
        _, factor = draw_kept(torch.ones(4), probability)
        num_kept = LEVELS / factor
        assert num_kept == pytest.approx(round(num_kept))
        assert 1 <= round(num_kept) <= LEVELS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_gradient_is_that_of_what_was_kept(dtype):
    x = torch.randn(33, 64, dtype=dtype).mT.requires_grad_()  # in no order of memory that a mask might expect
    y = drop(x, 0.3)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert_close(gradient * x, y)


def test_all_may_be_dropped():
    x = torch.randn(2**17, requires_grad=True)
    y = drop(x, 1.0)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert not y.any()
    assert not gradient.any()


def test_torchs_seed_decides():
    x = torch.ones(1000)
    torch.manual_seed(1)
    first, second = drop(x, 0.5), drop(x, 0.5)
    torch.manual_seed(1)
    assert torch.equal(drop(x, 0.5), first)
    assert not torch.equal(first, second)


def test_recomputed_activations_drop_the_same():
    layer, x = Dropout(0.5), torch.randn(1000, requires_grad=True)
    y = checkpoint(lambda x: layer(x).square(), x, use_reentrant=False)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient == 0, y == 0)


def test_evaluation_drops_nothing():
    x = torch.randn(10)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
