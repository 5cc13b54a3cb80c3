"""Several linear layers as one product, where they are plain."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from tercet.modeling.layers.position_wise import is_plain, project


@pytest.fixture(params=[True, False], ids=["bias", "no bias"])
def layers(request):
    torch.manual_seed(0)
    return [nn.Linear(6, width, bias=request.param).double() for width in (4, 2, 3)]


def test_one_product_equals_several(layers):
    x = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    parameters = [x, *(parameter for layer in layers for parameter in layer.parameters())]
    results = []
    for training in (True, False):
        outputs = project(x, *(layer.train(training) for layer in layers))
        loss = torch.cat([output.sin() for output in outputs], dim=-1).sum()
        results.append((outputs, torch.autograd.grad(loss, parameters)))
    assert_close(results[0], results[1])


def test_layers_of_which_one_has_a_bias_keep_it():
    layers = [nn.Linear(6, 4, bias=False), nn.Linear(6, 4), nn.Linear(6, 4, bias=False)]
    x = torch.randn(5, 6)
    assert_close(project(x, *layers), tuple(layer(x) for layer in layers))


def test_a_layer_that_is_more_than_plain_is_called(layers):
    seen = []
    layers[1].register_forward_hook(lambda layer, inputs, output: seen.append(output))
    _, second, _ = project(torch.randn(5, 6, dtype=torch.float64), *layers)
    assert second is seen[0]

    class Doubled(nn.Linear):
        def forward(self, input):
            return 2 * super().forward(input)

    class Quantized(Tensor):
        pass

    quantized = nn.Linear(6, 6)
    quantized.weight = nn.Parameter(quantized.weight.data.as_subclass(Quantized))
    moved = nn.Linear(6, 6)
    moved.forward = lambda input: input
    assert not is_plain(Doubled(6, 6))
    assert not is_plain(moved)
    assert not is_plain(quantized)
    assert is_plain(nn.Linear(6, 6))
