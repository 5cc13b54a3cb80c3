"""Written-out gradients of short attention against the definition and autograd."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tercet.modeling.attention import dot_product as module
from tercet.modeling.attention.dot_product import additive, scaled_dot_product, short_attention

B, T, S, H, D = 3, 7, 5, 4, 6


@pytest.fixture
def heads():
    """Queries (b, t, H, D), keys and values (b, s, G, D) of a width that no power of two divides."""
    torch.manual_seed(0)

    def draw(num_key_value_heads: int = H, num_keys: int = S):
        shapes = ((B, T, H, D), *2 * ((B, num_keys, num_key_value_heads, D),))
        return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]

    return draw


def by_definition(query, key, value, bias, dropout=0.0):
    heads_first = (x.transpose(1, 2) for x in (query, key, value))
    no_module = cast(nn.Module, SimpleNamespace(training=True))
    return scaled_dot_product(no_module, *heads_first, bias, scaling=D**-0.5, dropout=dropout)[0]


def gradients(read, inputs):
    weight = torch.linspace(-1, 1, read.numel(), dtype=read.dtype).view(read.shape)
    return torch.autograd.grad((read * weight).sum(), inputs)


@pytest.mark.parametrize("num_key_value_heads", [H, 2, 1])
@pytest.mark.parametrize("kind", ["open", "padded", "causal"])
def test_it_equals_the_definition(heads, num_key_value_heads, kind):
    inputs = heads(num_key_value_heads, T if kind == "causal" else S)
    keys = torch.arange(S) < torch.tensor([5, 2, 1])[:, None]
    mask = keys[:, None, None] if kind == "padded" else None
    bias = additive(mask, kind == "causal", T, like=inputs[0])
    fast = short_attention(*inputs, bias, scaling=D**-0.5, dropout=0.0)
    slow = by_definition(*inputs, bias)
    assert_close(fast, slow)
    assert_close(gradients(fast, inputs), gradients(slow, inputs))


@pytest.mark.parametrize("shape", [(1, H, T, S), (B, H, T, S), (B, 1, 1, S)])
def test_a_bias_has_its_gradient(heads, shape):
    inputs, bias = heads(), torch.randn(shape, dtype=torch.float64, requires_grad=True)
    fast = short_attention(*inputs, bias, scaling=D**-0.5, dropout=0.0)
    slow = by_definition(*inputs, bias)
    assert_close(fast, slow)
    assert_close(gradients(fast, [*inputs, bias]), gradients(slow, [*inputs, bias]))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 1e-2)])
def test_dropped_weights_equal_the_definition_with_the_same_ones(heads, dtype, tolerance, monkeypatch):
    exact, drawn = heads(), []
    inputs = [x.detach().to(dtype).requires_grad_() for x in exact]
    draw = module.draw_kept

    def remember(*arguments: Any):
        drawn.append(draw(*arguments))
        return drawn[-1]

    monkeypatch.setattr(module, "draw_kept", remember)
    fast = short_attention(*inputs, None, scaling=D**-0.5, dropout=0.4)
    is_kept, factor = drawn[0]
    query, key, value = (x.transpose(1, 2) for x in exact)
    weights = (query @ key.mT * D**-0.5).softmax(-1) * (is_kept != 0) * factor
    slow = (weights @ value).transpose(1, 2)
    for found, expected in zip(
        (fast, *gradients(fast, inputs)), (slow, *gradients(slow, exact)), strict=True
    ):
        assert (found - expected).norm() < tolerance * expected.norm()


@pytest.mark.parametrize("num_keys", [S, 16, 20, 31, 32])
def test_half_precision_errs_no_more_than_the_definition(heads, num_keys):
    given = heads(num_keys=num_keys)
    rounded = [x.detach().bfloat16().requires_grad_() for x in given]
    fast = short_attention(*rounded, None, scaling=D**-0.5, dropout=0.0)
    assert fast.dtype == torch.bfloat16
    exact = by_definition(*given, None)
    slow = by_definition(*rounded, None)
    assert (fast - exact).norm() < 1.1 * (slow - exact).norm()
    assert all(gradient.dtype == torch.bfloat16 for gradient in gradients(fast, rounded))
