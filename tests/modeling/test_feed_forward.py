"""Feed-forward networks against their formulas, in outputs and gradients."""

import math

import pytest
import torch
from torch.testing import assert_close

from tercet.modeling import TercetDecoderConfig
from tercet.modeling.layers.position_wise import FEED_FORWARD, build_activation

C, F = 12, 20
FORMULAS = {
    "relu": lambda x: torch.where(x > 0, x, 0),
    "relu2": lambda x: torch.where(x > 0, x * x, 0),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "gelu_pytorch_tanh": lambda x: x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + torch.exp(-x)),
}
"""Activations by transformers' names. Gated, `gelu` is GEGLU and `silu` is SwiGLU (Shazeer, 2020)."""


def defined(network, kind: str, activation, x):
    """W_down act(W_up x), or W_down (act(W_gate x) * W_up x), with biases."""
    weights = dict(network.named_parameters())

    def affine(name, state):
        return state @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    inner = affine("up_proj", x)
    inner = activation(inner) if kind == "plain" else activation(affine("gate_proj", x)) * inner
    return affine("down_proj", inner)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", FEED_FORWARD)
@pytest.mark.parametrize("name", FORMULAS)
def test_networks_equal_their_formulas(name, kind, training):
    torch.manual_seed(0)
    config = TercetDecoderConfig(
        hidden_size=C, intermediate_size=F, num_attention_heads=2, mlp_bias=True, hidden_act=name
    )
    network = FEED_FORWARD[kind](config).double().train(training)
    x = torch.randn(2, 5, C, dtype=torch.float64, requires_grad=True)
    found, expected = network(x), defined(network, kind, FORMULAS[name], x)
    assert_close(found, expected)
    leaves = [*network.parameters(), x]
    assert_close(*(torch.autograd.grad(each.square().sum(), leaves) for each in (found, expected)))


def test_squared_relu_by_hand():
    """max(x, 0)^2 (So et al., 2021, section 3), whose slope is 2 max(x, 0)."""
    x = torch.tensor([-2.0, 0.0, 0.5, 3.0], requires_grad=True)
    y = build_activation("relu2")(x)
    y.sum().backward()
    assert y.tolist() == [0, 0, 0.25, 9]
    assert x.grad is not None
    assert x.grad.tolist() == [0, 0, 1, 6]
