"""Operations of recurrent layers, which torch's counter does not know: each is one fused operator.

Every step multiplies the matrices of a layer with an input and a state, so that a layer costs two operations
for each weight and position forward, and twice as many backward. Where an LSTM is not fused, torch counts its
products by itself.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

Shape = Sequence[int]

ATEN = torch.ops.aten


def count_layer(x: Shape, *weights: Shape) -> int:
    """Count the operations of a layer with matrices of these shapes, forward, on inputs of shape `x`.

    >>> count_layer((7, 3, 10), (40, 10), (40, 10), (40,))
    33600
    """
    num_positions = x[0] * x[1]
    return 2 * num_positions * sum(shape[0] * shape[1] for shape in weights if len(shape) == 2)


@register_flop_formula(ATEN.mkldnn_rnn_layer)
def of_cpu_layer(x: Shape, input_weight: Shape, state_weight: Shape, *_: Any, **__: Any) -> int:
    """Count one layer of oneDNN, forward."""
    return count_layer(x, input_weight, state_weight)


@register_flop_formula(ATEN.mkldnn_rnn_layer_backward)
def of_cpu_layer_backward(x: Shape, input_weight: Shape, state_weight: Shape, *_: Any, **__: Any) -> int:
    """Count one layer of oneDNN, backward."""
    return 2 * count_layer(x, input_weight, state_weight)


@register_flop_formula(ATEN._cudnn_rnn)
def of_gpu_layers(x: Shape, weights: Sequence[Shape], *_: Any, **__: Any) -> int:
    """Count all layers of cuDNN, forward."""
    return count_layer(x, *weights)


@register_flop_formula(ATEN._cudnn_rnn_backward)
def of_gpu_layers_backward(x: Shape, weights: Sequence[Shape], *_: Any, **__: Any) -> int:
    """Count all layers of cuDNN, backward."""
    return 2 * count_layer(x, *weights)
