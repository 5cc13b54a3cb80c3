"""Linear layers: the one that writes into the residual stream, and several that read the same input."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..configuration_tercet import TercetConfig
from ..generation.prepacked_weights import is_plain, joint_product


def residual_linear(config: TercetConfig, in_features: int, bias: bool) -> nn.Linear:
    """Build what projects a sub-layer's result back to the model's width.

    With the norm before the sub-layers, every layer adds to the stream twice and its variance grows with
    depth; the initial weights are smaller by 1 / sqrt(2 * layers) to keep it constant (Radford et al., 2019,
    section 2.3). The norm after the sub-layers needs no such care. With `zero_init_residual` they are zero.

    The layer is of no class of its own, since torch's quantizer knows layers by their exact class.
    """
    layer = nn.Linear(in_features, config.hidden_size, bias=bias)
    vars(layer)["init_scale"] = initial_scale(config)
    return layer


def initial_scale(config: TercetConfig) -> float:
    """Return the factor of the initial weights of layers that project back to the model's width."""
    if config.zero_init_residual:
        return 0.0
    return (2 * config.num_hidden_layers) ** -0.5 if config.norm_placement != "post" else 1.0


def init_scale(layer: nn.Linear) -> float | None:
    """Return what scales a layer's initial weights, if it is one that projects back to the model's width."""
    return vars(layer).get("init_scale")


def project(x: Tensor, *layers: nn.Module) -> tuple[Tensor, ...]:
    """Apply each of several linear layers to `x`; in training on a CPU as one product of matrices.

    One product reads its input once, and its gradient needs no sum of several. On a GPU the products are
    large enough, and their joined weights, which the backward pass keeps, would outlive what FSDP frees.
    A layer that is more than a plain one (wrapped by PEFT, quantized, hooked) is called. While a model that
    is not in training generates, the product is one by prepacked weights.
    """
    plain = [layer for layer in layers if is_plain(layer) and layer.training]
    has_bias = {layer.bias is not None for layer in plain}
    if not x.is_cpu or len(plain) < len(layers) or len(has_bias) > 1:
        product = joint_product(*layers)
        return tuple(layer(x) for layer in layers) if product is None else product(x)
    weights = torch.cat([layer.weight for layer in plain])
    biases = torch.cat([layer.bias for layer in plain]) if has_bias == {True} else None
    return F.linear(x, weights, biases).split([layer.out_features for layer in plain], dim=-1)
