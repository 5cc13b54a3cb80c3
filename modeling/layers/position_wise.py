"""What a position computes on its own: embeddings, linear layers, norms, dropout, the feed-forward network.

Layer norm (Ba et al., 2016) centers and scales the C channels of one token; root-mean-square norm (Zhang and
Sennrich, 2019) only scales. Neither looks at other tokens or other sequences, which is why ragged batches
are safe.

On a CPU, torch draws a float for every element that dropout (Srivastava et al., 2014) may drop, one after
another: one in six nanoseconds. Sixteen bits are enough to decide whether an element is kept, and one draw of
a 64-bit generator gives four of them, in two nanoseconds. The generator is seeded by torch's, so that
`torch.manual_seed`, checkpoints of its state and recomputed activations govern this dropout as they do
torch's own.

Shapes: B batch, T positions, C model width, E width of token vectors, F width inside.
"""

import math
from collections.abc import Callable
from contextvars import ContextVar
from types import MethodType
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from transformers.activations import ACT2FN

from ..compatibility import fake_tensor, has_hooks, is_tracing
from ..configuration_neural import NeuralConfig
from ..configuration_tercet import TercetConfig
from .positions import NoPositions


def residual_linear(config: TercetConfig, in_features: int, bias: bool) -> nn.Linear:
    """Build what projects a sub-layer's result back to the model's width.

    With the norm before the sub-layers, every layer adds to the stream twice and its variance grows with
    depth; the initial weights are smaller by 1 / sqrt(2 * layers) to keep it constant (Radford et al., 2019,
    section 2.3). The norm after the sub-layers needs no such care. With `zero_init_residual` they are zero.

    The layer is of no class of its own, since torch's quantizer knows layers by their exact class.
    """
    layer = nn.Linear(in_features, config.hidden_size, bias=bias)
    scale = (2 * config.num_hidden_layers) ** -0.5 if config.norm_placement != "post" else 1.0
    vars(layer)["init_scale"] = 0.0 if config.zero_init_residual else scale
    return layer


def init_scale(layer: nn.Linear) -> float | None:
    """Return what scales a layer's initial weights, if it is one that projects back to the model's width."""
    return vars(layer).get("init_scale")


def project(x: Tensor, *layers: nn.Module) -> tuple[Tensor, ...]:
    """Apply each of several linear layers to `x`; in training on a CPU as one product of matrices.

    One product reads its input once, and its gradient needs no sum of several. On a GPU the products are
    large enough, and their joined weights, which the backward pass keeps, would outlive what FSDP frees.
    A layer that is more than a plain one (wrapped by PEFT, quantized, hooked) is called. While a model
    generates, something may have prepared one product, too.
    """
    plain = [layer for layer in layers if is_plain(layer) and layer.training]
    has_bias = {layer.bias is not None for layer in plain}
    if not x.is_cpu or len(plain) < len(layers) or len(has_bias) > 1:
        find = None if torch.is_grad_enabled() or torch.compiler.is_compiling() else joint_product.get()
        product = None if find is None else find(*layers)
        return tuple(layer(x) for layer in layers) if product is None else product(x)
    weights = torch.cat([layer.weight for layer in plain])
    biases = torch.cat([layer.bias for layer in plain]) if has_bias == {True} else None
    return F.linear(x, weights, biases).split([layer.out_features for layer in plain], dim=-1)


joint_product: ContextVar[Callable[..., Any] | None] = ContextVar("joint_product", default=None)
"""What finds one product for several layers that read the same input; `None`: nothing does."""

PLAIN = (Tensor, nn.Parameter, fake_tensor)
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
    own = vars(module).get("forward")
    return not has_hooks(module) and (own is None or is_stand_in(own))


def stand_in(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Mark what may be `forward` of a module for a while because it computes the same.

    A module that is pickled meanwhile looks it up by its name, and finds its own.
    """
    vars(forward)["is_stand_in"] = True
    forward.__name__ = "forward"
    return forward


def is_stand_in(forward: object) -> bool:
    """Return whether the `forward` of a module is a stand-in, or was one when it was pickled."""
    if not isinstance(forward, MethodType):
        return False
    own = getattr(type(forward.__self__), "forward", None)
    return forward.__func__ is own or getattr(forward, "is_stand_in", False)


def build_norm(config: NeuralConfig, width: int | None = None) -> nn.Module:
    """Build the norm that `config` names, over `width` channels; `None`: the model's."""
    width = width or config.hidden_size
    if config.norm_type == "layer_norm":
        return nn.LayerNorm(width, eps=config.norm_eps, bias=config.norm_bias)
    return RMSNorm(width, eps=config.norm_eps)


class RMSNorm(nn.RMSNorm):
    """Root-mean-square norm in the type of its weights, as autocast computes layer norm."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype))


class HeadRMSNorm(RMSNorm):
    """Root-mean-square norm of each head of queries or keys, with a result in the type of the heads.

    Attention wants queries and keys of the type of values, which under autocast is not that of the weights.
    """

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).to(x.dtype)


def build_head_norm(config: TercetConfig) -> nn.Module:
    """Build the norm of the heads of queries, or of keys, if `config` has one."""
    if not config.use_qk_norm:
        return nn.Identity()
    assert config.head_dim is not None  # every configuration fills it in
    return HeadRMSNorm(config.head_dim, eps=config.norm_eps)


LEVELS = 2**16
"""Number of probabilities that sixteen bits distinguish."""


class Dropout(nn.Dropout):
    """Set elements to zero with probability `p` in training, and scale the others by 1 / (1 - p)."""

    def forward(self, input: Tensor) -> Tensor:
        return drop(input, self.p) if self.training else input


def drop(x: Tensor, probability: float) -> Tensor:
    """Drop elements of `x`: by torch's own dropout, or on a CPU by sixteen random bits for each."""
    if probability == 0:
        return x
    is_plain_case = x.device.type == "cpu" and probability < 1
    if not is_plain_case or is_tracing():
        return F.dropout(x, probability)
    return _Drop.apply(x, probability)


def draw_kept(x: Tensor, probability: float) -> tuple[Tensor, float]:
    """Draw which elements of `x` are kept, in the form that `masked` takes, and the factor of those that are.

    The factor is the inverse of the share that is kept in the mean, a multiple of 1 / 65,536. Where `x` is
    no plain tensor of the CPU (on another device, sharded, or without data) torch draws.
    """
    form = torch.int16 if x.itemsize == torch.int16.itemsize else torch.uint8
    if type(x) is not Tensor or x.device.type != "cpu":
        kept = torch.empty_like(x, dtype=form, requires_grad=False).bernoulli_(1 - probability)
        return (kept.neg_() if form == torch.int16 else kept), 1 / (1 - probability)
    shape = x.shape
    num_dropped = min(round(probability * LEVELS), LEVELS - 1)
    seed = int(torch.randint(2**63 - 1, ()))
    bits = np.random.SFC64(seed).random_raw(-(-shape.numel() // 4)).view(np.int16)[: shape.numel()]
    # In place and in integers: torch compares and multiplies booleans ten times slower.
    kept = torch.from_numpy(bits).view(shape).ge_(num_dropped - LEVELS // 2)
    return (kept.neg_() if form == torch.int16 else kept.to(form)), LEVELS / (LEVELS - num_dropped)


def masked(x: Tensor, is_kept: Tensor | None) -> Tensor:
    """Set to zero what is not kept: 16-bit numbers by all or no bits in int16, others by ones in uint8."""
    if is_kept is not None and is_kept.dtype == torch.int16:
        return (x.view(torch.int16) & is_kept).view(x.dtype)
    return x if is_kept is None else x * is_kept.to(x.dtype)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float) -> Tensor:
        is_kept, ctx.factor = draw_kept(x, probability)
        ctx.save_for_backward(is_kept)
        return masked(x, is_kept).mul_(ctx.factor)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor, None]:
        (is_kept,) = ctx.saved_tensors
        return masked(gradient, is_kept).mul_(ctx.factor), None


GELU_SLOPE = 2 * (2 / math.pi) ** 0.5
"""Of the approximation of GELU: tanh(u) is 2 sigmoid(2u) - 1."""


def build_activation(name: str) -> nn.Module:
    """Build an activation by its name in transformers.

    `gelu_new` of GPT-2 and `gelu_pytorch_tanh` are one function (Hendrycks and Gimpel, 2016, section 2): the
    first spells it in eight operations, the second is one of torch's.
    """
    return TanhGelu() if name in ("gelu_new", "gelu_pytorch_tanh") else ACT2FN[name]


class TanhGelu(nn.Module):
    """GELU by its approximation with tanh (Hendrycks and Gimpel, 2016, section 2), x sigmoid(2u).

    Compiled layers that learn write it so: on a GPU tanh takes longer than to read and write its numbers, an
    exponential does not.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and is_tracing()):
            return F.gelu(x, approximate="tanh")
        exact = x.to(torch.promote_types(x.dtype, torch.float32))
        return (exact * torch.sigmoid(GELU_SLOPE * (exact + 0.044715 * exact**3))).to(x.dtype)


class PlainFeedForward(nn.Module):
    """W_down act(W_up x), of Vaswani et al., 2017, section 3.3: (B, T, C) -> (B, T, F) -> (B, T, C)."""

    prepacks = True
    activated = ("up_proj", "act_fn")  # may be one product: see prepacked_weights

    def __init__(self, config: TercetConfig):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = residual_linear(config, config.intermediate_size, bias=config.mlp_bias)
        self.act_fn = build_activation(config.hidden_act)
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.dropout(self.act_fn(self.up_proj(x))))


class GatedFeedForward(nn.Module):
    """W_down (act(W_gate x) * W_up x), of Shazeer, 2020, "GLU Variants Improve Transformer"."""

    prepacks = True

    def __init__(self, config: TercetConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = residual_linear(config, config.intermediate_size, bias=config.mlp_bias)
        self.act_fn = build_activation(config.hidden_act)
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = project(x, self.gate_proj, self.up_proj)
        return self.down_proj(self.dropout(self.act_fn(gate) * up))


FEED_FORWARD: dict[str, type[nn.Module]] = {"plain": PlainFeedForward, "gated": GatedFeedForward}


class Embeddings(nn.Module):
    """Sum of token, segment and absolute position vectors, optionally scaled and normalized.

    Vectors of another width than the model's are projected to it, so that a large vocabulary need not cost
    many parameters (ALBERT: Lan et al., 2020, section 3.1; ELECTRA: Clark et al., 2020, section 3.2).
    """

    def __init__(self, config: NeuralConfig, positions: NoPositions):
        super().__init__()
        width = config.embedding_width
        self.embed_tokens = nn.Embedding(config.vocab_size, width)
        self.token_types = nn.Embedding(config.type_vocab_size, width) if config.type_vocab_size else None
        self.positions = positions
        self.input_dropout = Dropout(config.embedding_input_dropout)
        self.norm = build_norm(config, width) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.dropout_of("embedding_dropout"))
        is_projected = width != config.hidden_size
        self.projection = nn.Linear(width, config.hidden_size) if is_projected else nn.Identity()
        self.scale = width**0.5 if config.scale_embedding else 1.0

    def forward(self, x: Tensor, token_type_ids: Tensor | None, position_ids: Tensor) -> Tensor:
        """Add position and segment to the vectors of tokens (B, T, E): (B, T, C)."""
        x = (x if self.scale == 1.0 else x * self.scale) + self.positions.embed(position_ids)
        x = x + self.segments(token_type_ids, position_ids)
        # The stream has the type of the weights: positions are float32, and autocast projects in less.
        dtype = self.embed_tokens.weight.dtype
        return self.projection(self.dropout(self.norm(self.input_dropout(x.to(dtype))))).to(dtype)

    def segments(self, token_type_ids: Tensor | None, position_ids: Tensor) -> Tensor | float:
        """Vectors of the segments (B, T, E), by default the first segment's (E,); 0 if the model has none."""
        if self.token_types is not None:
            # The table is called, not indexed, since offloaded weights are fetched for calls.
            return self.token_types(position_ids.new_zeros(()) if token_type_ids is None else token_type_ids)
        if token_type_ids is not None:
            raise ValueError(
                "token_type_ids given, but type_vocab_size is 0: build the model with type_vocab_size=2, "
                "or remove 'token_type_ids' from the tokenizer's model_input_names"
            )
        return 0.0


def look_up(table: nn.Embedding, input_ids: Tensor | None) -> Tensor:
    """Look up the vectors of tokens (B, T): (B, T, E)."""
    if is_tracing():
        return table(input_ids)
    try:
        return table(input_ids)
    except IndexError:
        assert input_ids is not None
        first, last = input_ids.aminmax()
        wrong = int(first if first < 0 else last)
        raise ValueError(
            f"input_ids hold {wrong}, but the model has {len(table.weight)} tokens: "
            "take the tokenizer that was saved with it, or model.resize_token_embeddings(len(tokenizer))"
        ) from None
