"""Operations of recurrent layers: fused ones are counted as the products that they consist of."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tercet.training import utilization  # noqa: F401  registers the formulas


def count(layers: nn.Module, x: torch.Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        layers(x)[0].sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("num_layers", [1, 2])
def test_a_fused_layer_counts_as_the_products_of_its_definition(num_layers):
    """Without oneDNN an LSTM is a loop of products, which torch counts by itself."""
    layers = nn.LSTM(10, 8, num_layers, batch_first=True)
    x = torch.randn(3, 7, 10, requires_grad=True)
    fused = count(layers, x)
    with torch.backends.mkldnn.flags(enabled=False):
        expected = count(layers, x)
    # The initial state is no leaf of the graph: the loop has no gradient of it, the fused layer computes one.
    of_initial_state = num_layers * 2 * 3 * 8 * 32
    assert fused == expected + of_initial_state
