"""Linear layers: the one that writes into the residual stream, and several that read the same input."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F

from ..configuration_tercet import TercetConfig


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
    A layer that is more than a plain one (wrapped by PEFT, quantized, hooked) is called.
    """
    plain = [layer for layer in layers if is_plain(layer) and layer.training]
    has_bias = {layer.bias is not None for layer in plain}
    if not x.is_cpu or len(plain) < len(layers) or len(has_bias) > 1:
        return apply_each(x, *layers)
    weights = torch.cat([layer.weight for layer in plain])
    biases = torch.cat([layer.bias for layer in plain]) if has_bias == {True} else None
    return F.linear(x, weights, biases).split([layer.out_features for layer in plain], dim=-1)


def apply_each(x: Tensor, *layers: nn.Module) -> tuple[Tensor, ...]:
    """Apply each layer, or the product that something has prepared for them while a model generates."""
    find = None if torch.is_grad_enabled() or torch.compiler.is_compiling() else joint_product.get()
    product = None if find is None else find(*layers)
    return tuple(layer(x) for layer in layers) if product is None else product(x)


joint_product: ContextVar[Callable[..., Any] | None] = ContextVar("joint_product", default=None)
"""What finds one product for several layers that read the same input; `None`: nothing does."""

PLAIN = (Tensor, nn.Parameter, FakeTensor)
"""Classes of weights that products read; those of the last have no data, only what is known of it."""


def is_plain(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Return whether calling a layer multiplies by its weight, adds its bias, and does nothing else.

    It does more if it is wrapped by PEFT, quantized, distributed or hooked. Quantizers such as torchao's
    replace the weight alone, by a tensor of a class of its own.
    """
    is_linear = isinstance(layer, nn.Linear) and type(layer).forward is nn.Linear.forward
    return is_linear and is_untouched(layer) and type(layer.weight) in PLAIN


def is_untouched(module: nn.Module) -> bool:
    """Return whether a module has no hooks, its own forward pass or a stand-in, and no compiled one."""
    return not (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or module._compiled_call_impl
        or ("forward" in vars(module) and not is_stand_in(vars(module)["forward"]))
    )


def stand_in(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Mark what may be `forward` of a module for a while because it computes the same."""
    vars(forward)["is_stand_in"] = True
    return forward


def is_stand_in(forward: object) -> bool:
    """Return whether the `forward` of a module is a stand-in."""
    return getattr(forward, "is_stand_in", False)
