"""Weights in the order in which a CPU reads them fastest: what makes decoding fast there.

A step of decoding multiplies one vector, or a few, by every weight of the model: it takes as long as it takes
to read them. torch's own product reads a vocabulary of 50,257 x 256 in float32 at 7 GB/s, and at 30 GB/s once
oneDNN has cut the matrix into the blocks in which the processor multiplies. Cutting takes as long as a few
steps, and the blocks as much memory as the weights. Therefore a layer's are cut when it is first needed, and
kept for the next text until the model is trained, or their versions or checksums say that the weights have
changed. They belong to no module, and are never saved: meanwhile linear layers have another `forward`, and
the model's code just calls its layers.

The two operators are those of torch's compiler, and not public: see `compatibility.py`. Without them linear
layers compute as usual.

Shapes: C width of the input, R width of the result.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from threading import Lock
from types import MethodType
from typing import TypeGuard, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from ..compatibility import cut_into_blocks, multiplies_blocks, multiply_blocks, version_of
from ..layers.position_wise import TanhGelu, is_plain, is_stand_in, is_untouched, joint_product, stand_in

ROWS_AT_ONCE = 512
"""Rows of a weight whose bits are summed together."""


def versions(*layers: nn.Linear) -> list[int | None]:
    """Count how often torch has changed each of the layers' parameters; it does not for inference tensors."""
    parameters = (parameter for layer in layers for parameter in layer.parameters())
    return [version_of(parameter) for parameter in parameters]


def checksums(*layers: nn.Linear) -> list[Tensor]:
    """Sum the bits of each row and each column of the layers' parameters as whole numbers.

    They tell of changes that torch does not count, through `.data` or numpy. No single one escapes, nor do
    rows or columns that change places.
    """
    return [checksum(parameter.detach()) for layer in layers for parameter in layer.parameters()]


def checksum(parameter: Tensor) -> Tensor:
    """Sum words of eight bytes where they fit: torch adds these as fast as it reads them.

    Some rows at a time, which the processor's cache still holds when their columns are added. A bias is its
    own checksum.
    """
    row = parameter.shape[-1] * parameter.itemsize
    kind = torch.int64 if row % 8 == 0 else torch.int32 if row % 4 == 0 else torch.int16
    words = parameter.contiguous().view(kind)
    if words.dim() == 1:
        return words.clone()
    of_rows, of_columns = [], torch.zeros(words.shape[1], dtype=torch.int64)
    for part in words.split(ROWS_AT_ONCE):
        of_rows.append(part.sum(dim=1))
        of_columns += part.sum(dim=0)
    return torch.cat([*of_rows, of_columns])


ROWS = 8
"""Vectors for which oneDNN chooses the blocks. What it chooses for 2 to 64 serves any number as well."""

FUSED: dict[type[nn.Module], tuple[str, str]] = {
    type(ACT2FN["relu"]): ("relu", ""),
    type(ACT2FN["silu"]): ("swish", ""),
    type(ACT2FN["gelu"]): ("gelu", "none"),
    TanhGelu: ("gelu", "tanh"),
}
"""Activations that oneDNN applies to the results of a product before it writes them -> their names there."""


class PrepackedProduct:
    """Plain linear layers that read the same input, as one product by a copy of their weights."""

    def __init__(self, *layers: nn.Linear):
        weights = [layer.weight.detach() for layer in layers]
        biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
        self.blocks = cut_into_blocks(joined(weights), ROWS)
        self.bias = joined(biases) if biases else None
        self.widths = [len(weight) for weight in weights]
        self.versions = versions(*layers)
        self.checksums = checksums(*layers)

    def __call__(self, x: Tensor, *fused: str) -> tuple[Tensor, ...]:
        results = multiply_blocks(x, self.blocks, self.bias, *fused)
        return (results,) if len(self.widths) == 1 else results.split_with_sizes(self.widths, dim=-1)

    def is_of(self, *layers: nn.Linear) -> bool:
        """Return whether the layers still hold the parameters that were copied."""
        if versions(*layers) != self.versions:
            return False
        present = checksums(*layers)
        return len(present) == len(self.checksums) and all(map(torch.equal, present, self.checksums))


class PrepackedWeights:
    """The products of a model's layers, each prepared when it is first needed."""

    def __init__(self) -> None:
        self.products: dict[tuple[nn.Module, ...], PrepackedProduct] = {}
        self.fused: dict[nn.Module, nn.Module] = {}
        """Layers whose results only an activation sees -> that activation."""
        self.before: dict[nn.Module, nn.Module] = {}
        """The same the other way round."""

    def product(self, *layers: nn.Module) -> PrepackedProduct | None:
        """Return the joint product of some layers, if they can be prepacked together."""
        found = self.products.get(layers)
        if found is None and can_be_prepacked(layers):
            found = self.products[layers] = PrepackedProduct(*layers)
        return found  # whatever another thread drops meanwhile

    def applies(self, layer: nn.Module) -> bool:
        """Return whether the product of a layer applies the activation behind it, too."""
        act_fn = self.fused.get(layer)
        if act_fn is None or not is_untouched(act_fn) or self.product(layer) is None:
            return False
        return applies_in_products(type(act_fn), cast(nn.Linear, layer).weight.dtype)

    def drop_changed(self) -> None:
        """Drop the products of layers that hold other weights, or are no longer plain."""
        self.products = {
            layers: product
            for layers, product in list(self.products.items())  # to which another thread may add
            if can_be_prepacked(layers) and product.is_of(*layers)
        }


_in_use: ContextVar[PrepackedWeights | None] = ContextVar("prepacked_weights", default=None)
_kept: WeakKeyDictionary[nn.Module, PrepackedWeights] = WeakKeyDictionary()


_users: Counter[nn.Module] = Counter()
_lock = Lock()


@contextmanager
def prepacked_weights(model: nn.Module) -> Iterator[None]:
    """Let linear layers of a model multiply by prepacked weights, where no gradient is needed.

    The blocks are kept for the next time, except those of a model in training, whose weights will change.
    """
    weights = PrepackedWeights() if model.training else _kept.setdefault(model, PrepackedWeights())
    weights.drop_changed()
    weights.fused = dict(find_fused(model))
    weights.before = {act_fn: layer for layer, act_fn in weights.fused.items()}
    forwards: dict[nn.Module, Callable[..., Tensor]]
    forwards = dict.fromkeys(find_layers(model), prepacked_forward)
    forwards |= dict.fromkeys(weights.fused.values(), activated_forward)
    tokens = _in_use.set(weights), joint_product.set(usable_product)
    try:
        with swapped(forwards):
            yield
    finally:
        _in_use.reset(tokens[0])
        joint_product.reset(tokens[1])


@contextmanager
def swapped(forwards: dict[nn.Module, Callable[..., Tensor]]) -> Iterator[None]:
    """Exchange the `forward` of modules meanwhile; of several threads, the last one takes it back."""
    with _lock:
        for module, forward in forwards.items():
            _users[module] += 1
            vars(module)["forward"] = MethodType(forward, module)
    try:
        yield
    finally:
        with _lock:
            _users.subtract(forwards.keys())
            for module in [module for module in forwards if not _users[module]]:
                del _users[module]
                if is_stand_in(vars(module).get("forward")):
                    del vars(module)["forward"]


def find_layers(model: nn.Module) -> Iterator[nn.Linear]:
    """Find the plain linear layers of modules that say `prepacks`: those that are read in every step."""
    for module in model.modules():
        if getattr(type(module), "prepacks", False):
            yield from filter(is_plain, module.children())


def find_fused(model: nn.Module) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Find the linear layers whose results only an activation sees, each with that activation.

    A module names both as `activated`, beside the `forward` that calls one after the other.
    """
    for module in model.modules():
        owner = next(base for base in type(module).__mro__ if "forward" in vars(base))
        if "activated" in vars(owner) and is_untouched(module):
            layer, act_fn = (getattr(module, name) for name in owner.activated)
            if is_plain(layer) and type(act_fn) in FUSED and is_untouched(act_fn):
                yield layer, act_fn


@stand_in
def prepacked_forward(layer: nn.Linear, x: Tensor) -> Tensor:
    """Multiply by the prepacked weights of a linear layer, whose `forward` this is, where they are usable."""
    weights = usable_weights()
    product = None if weights is None else weights.product(layer)
    if weights is None or product is None:
        return type(layer).forward(layer, x)
    return product(x, *(FUSED[type(weights.fused[layer])] if weights.applies(layer) else ()))[0]


@stand_in
def activated_forward(act_fn: nn.Module, x: Tensor) -> Tensor:
    """Apply an activation, whose `forward` this is, unless the product before it has done so."""
    weights = usable_weights()
    layer = None if weights is None else weights.before.get(act_fn)
    is_applied = weights is not None and layer is not None and weights.applies(layer)
    return x if is_applied else type(act_fn).forward(act_fn, x)


def free_prepacked_weights(model: nn.Module) -> None:
    _kept.pop(model, None)


def usable_product(*layers: nn.Module) -> PrepackedProduct | None:
    """Return the product of several layers that read the same input, where prepacked weights are usable."""
    weights = usable_weights()
    return None if weights is None else weights.product(*layers)


def usable_weights() -> PrepackedWeights | None:
    """Return the blocks that are in use, unless the present call needs the layers themselves."""
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return None
    return _in_use.get()


def can_be_prepacked(layers: tuple[nn.Module, ...]) -> TypeGuard[tuple[nn.Linear, ...]]:
    """Return whether layers are plain and alike, and lie on a CPU that multiplies blocks of their type."""
    plain = [layer for layer in layers if is_plain(layer)]
    kinds = {(layer.weight.device.type, layer.weight.dtype, layer.bias is None) for layer in plain}
    if len(plain) < len(layers) or len(kinds) > 1:
        return False
    weight = plain[0].weight
    return weight.device.type == "cpu" and multiplies_blocks(weight.dtype)


@cache
def applies_in_products(kind: type[nn.Module], dtype: torch.dtype) -> bool:
    """Try once whether a product applies an activation of a kind as its module does."""
    x = torch.linspace(-4, 4, 16, device="cpu")[None].to(dtype)
    blocks = cut_into_blocks(torch.eye(16, dtype=dtype, device="cpu"), ROWS)
    try:
        found = multiply_blocks(x, blocks, None, *FUSED[kind])
    except Exception:  # whatever another version raises: the module then computes
        return False
    return torch.allclose(found.float(), kind()(x).float(), rtol=0.02, atol=0.02)


def joined(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)
