"""The kernels of attention: what each one can do, and which one computes in a situation.

kernel        layout  implementation  mask               bias  dropout  device     gradients  cache
single_query  padded  eager, sdpa     boolean, additive  yes   no       CPU        torch's    yes
flash         packed  flash kernels   bounds             no    its own  GPU        its own    no
varlen        packed  sdpa            bounds             no    yes      GPU, half  torch's    no
flex          packed  sdpa            tiles              yes   no       GPU        torch's    no
grouped       packed  eager, sdpa     bounds             yes   yes      all        written    no
operator      packed  eager, sdpa     bounds             yes   yes      all        its own    no
short         group   eager, sdpa     boolean            yes   yes      CPU        written    no
sparse        group   eager, sdpa     blocks             no    no       CPU        written    no
fused         group   eager, sdpa     boolean            yes   yes      all        torch's    no
pairs         padded  eager           additive           yes   yes      all        torch's    no
blocked       padded  sdpa            additive           yes   yes      all        written    no
blocked_group group   eager, sdpa     boolean            yes   yes      all        written    no

A `padded` batch (B, T) has a mask of its pairs, a `packed` stream the bounds of its sequences. A `group` is a
length-sorted batch of some of these sequences: `grouped` makes a few of a stream, since a block-diagonal mask
would cost the square of it. `sparse` serves groups that are long, where the pattern leaves out enough blocks;
a stack packs such texts, too, if nothing is cached yet (`cached_prompts`). The last three serve scores that
are no dot products, and they alone, also in the groups that `grouped` makes. Everything else is left to the
kernels registered with transformers' `AttentionInterface`, which compute dot products. There `eager` is the
definition, `scaled_dot_product`, which alone returns weights; for other scores `pairs` is.

Gradients that are written out here are unknown to compilers and to `torch.func`, for which a stack of blocks
describes packed sequences by a mask, as it does where weights are to be returned. Blocks that are compiled
one by one read bounds: `operator` takes the place of `grouped`, which is all there is for patterns whose
weights are dropped. The stack finds tiles where `flex` is to compute (`with_tiles`), once for all layers of a
type.

Shapes: B batch, T queries, S keys, H query heads, G key-value heads, D head width; b, t, s of a group; N
queries and M keys of a stream.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..compatibility import is_tracing
from ..configuration_tercet import TercetConfig, takes_bounds
from .dot_product import SHORT, additive, is_sparse, scaled_dot_product, single_query_attention
from .gpu_kernels import (
    CHANNELS,
    LACKED_HEADS,
    SMALLEST_HEAD,
    WIDEST_HEAD,
    find_tiles,
    has_flex_kernel,
    has_varlen_kernel,
    lacks_memory,
    tiled_attention,
)
from .packed import (
    Group,
    flash_attention,
    fused_group,
    operator_attention,
    short_group,
    sparse_group,
    stream_attention,
)
from .packing import Mask, Masks, PackedSequences
from .pairs import blocked_attention, blocked_group, pair_attention
from .patterns import AttentionPattern
from .relative_bias import dtype_of_scores

TensorLayout = Literal["padded", "packed", "group"]

TILED = "flex"
"""The kernel that reads tiles."""

FLASH = "flash"
"""Stands for all values of `attn_implementation` whose attention reads bounds."""


Need = Literal["dropout", "bias", "pairs", "scores", "tiles", "blocks", "step", "graph"]
"""What may be asked of a kernel:

dropout  weights are dropped
bias     positions add a bias to the scores of packed sequences
pairs    more than direction and window says which pairs attend: see `AttentionPattern.is_window`
scores   scores are no dot products
tiles    packed sequences bring the tiles of their pattern
blocks   the pattern leaves out enough pairs of a group to compute it by blocks: see `is_sparse`
step     each sequence has a single query, behind a cache that grows
graph    a compiler writes the computation down
"""


class Situation(NamedTuple):
    """What the choice of a kernel depends on.

    Args:
        implementation: The configuration's `attn_implementation`.
        layout: How queries and keys lie in memory.
        device: Where they are.
        dtype: Their type.
        head_dim: D.
        needs: What is asked of the kernel.
        num_keys: Those of the longest sequence of a group; 0 elsewhere.
    """

    implementation: str
    layout: TensorLayout
    device: torch.device
    dtype: torch.dtype
    head_dim: int
    needs: tuple[Need, ...] = ()
    num_keys: int = 0

    def also(self, need: Need) -> "Situation":
        """Return the situation in which something more is needed."""
        return self._replace(needs=(*self.needs, need))


def only_needed(**needs: object) -> tuple[Any, ...]:
    """List what is true of some needs."""
    return tuple(name for name, is_needed in needs.items() if is_needed)


@dataclass(frozen=True)
class Kernel:
    """A kernel, and the situations that it serves; a limit of `None` is none.

    Args:
        compute: The function.
        layout: The one layout that it reads.
        cannot: What it cannot do.
        only_for: It serves situations that need all of this, and no others.
        implementations: Values of `attn_implementation` for which it computes.
        devices: Types of devices.
        dtypes: Types of queries and keys.
        most_channels: Largest head width.
        multiple_of_channels: What the head width is a multiple of.
        most_keys: Keys up to which it is the fastest, where nothing is dropped.
        reads: What it reads of a mask of a `padded` batch: what transformers' kernels do (`None`), what is
            added to scores, or this in float32 at least, unless the mask is boolean.
        is_available: Whether this machine has it.
        lacks_gradients: Whether it has no gradients in a situation that it serves otherwise.
    """

    compute: Callable[..., Any]
    layout: TensorLayout
    cannot: tuple[Need, ...] = ("scores", "tiles")
    only_for: tuple[Need, ...] = ()
    implementations: tuple[str, ...] = ("eager", "sdpa")
    devices: tuple[str, ...] | None = None
    dtypes: tuple[torch.dtype, ...] | None = None
    most_channels: int | None = None
    multiple_of_channels: int = 1
    most_keys: int | None = None
    reads: Literal["addends", "wide addends"] | None = None
    is_available: Callable[[torch.device], bool] | None = None
    lacks_gradients: Callable[[Situation], bool] | None = None

    def serves(self, situation: Situation) -> bool:
        """Return whether the kernel can compute, and is meant to."""
        needs = situation.needs
        return (
            self.layout == situation.layout
            and self.computes_for(situation.implementation)
            and all(need in needs for need in self.only_for)
            and not any(need in needs for need in self.cannot)
            and (self.devices is None or situation.device.type in self.devices)
            and (self.dtypes is None or situation.dtype in self.dtypes)
            and (self.most_channels is None or situation.head_dim <= self.most_channels)
            and situation.head_dim % self.multiple_of_channels == 0
            and (self.most_keys is None or situation.num_keys <= self.most_keys or "dropout" in needs)
            and (self.is_available is None or self.is_available(situation.device))
            and not (self.lacks_gradients is not None and self.lacks_gradients(situation))
        )

    def computes_for(self, implementation: str) -> bool:
        """Return whether the kernel computes for a value of `attn_implementation`."""
        return (FLASH if takes_bounds(implementation) else implementation) in self.implementations


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask,
    pattern: AttentionPattern,
    *,
    scaling: float,
    dropout: float,
    output_attentions: bool = False,
    is_decode_step: bool = False,
    packed_bias: Tensor | None = None,
    kernel: Callable[..., tuple[Tensor, Tensor | None]] | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Let `query` (B, H, T, D) attend to `key` and `value` (B, G, S, D), by the kernel of the situation.

    Args:
        module: The layer, in which kernels look up `config`, `is_causal` and `layer_idx`.
        query: Of packed sequences, (1, H, N, D).
        key: Of packed sequences, (1, G, M, D).
        value: Of the size of `key`.
        mask: Which pairs may attend, by `kernel_form`; or the bounds of packed sequences.
        pattern: Which pairs attend within a sequence; its direction need not be that of the layer.
        scaling: Factor of the scores.
        dropout: Probability that a weight is dropped.
        output_attentions: Whether to return weights, which the definition alone does.
        is_decode_step: Whether each sequence has a single query, behind a growing cache.
        packed_bias: What is added to the scores of packed sequences, (1, H, T, T) of the longest.
        kernel: A kernel of the caller's own, which takes the place of all others.
        **options: `sliding_window`, and what else the caller has for the kernel.

    Returns:
        The weighted values (B, T, H, D), and the weights (B, H, T, S) if the kernel returns them.
    """
    sequences = mask if isinstance(mask, PackedSequences) else None
    config: Any = module.config
    needs = only_needed(
        dropout=dropout,
        bias=packed_bias is not None,
        pairs=not pattern.is_window or (sequences is not None and sequences.global_tokens is not None),
        scores=not config.has_dot_products,
        tiles=sequences is not None and sequences.tiles is not None,
        step=is_decode_step,
        graph=is_tracing(),
    )
    layout: TensorLayout = "padded" if sequences is None else "packed"
    named = "eager" if output_attentions and sequences is None else str(config._attn_implementation)
    situation = Situation(named, layout, query.device, query.dtype, query.shape[-1], needs)
    if sequences is not None:
        options |= {"packed_bias": packed_bias, "situation": situation, "pattern": pattern}
    elif pattern.is_causal != module.is_causal:
        options["is_causal"] = pattern.is_causal
    assert kernel is None or config.has_dot_products  # whoever brings a kernel asks `has_dot_products`
    compute = kernel or choose_kernel(situation)
    return compute(module, query, key, value, mask, scaling=scaling, dropout=dropout, **options)


def kernel_form(
    mask: Mask,
    config: TercetConfig,
    x: Tensor,
    *,
    is_causal: bool,
    dropout: float,
    output_attentions: bool = False,
    is_decode_step: bool = False,
) -> Mask:
    """Convert a mask of a padded batch to what the kernel reads, once for all layers that share it.

    Masks are built, and biases joined to them, as transformers' kernels read them: `None` means all pairs, or
    those that `is_causal` allows, unless the kernel is a definition. Packed sequences have no mask until they
    are cut into groups: each layer makes its own, of its pattern, which is in memory no longer than a group.
    """
    if isinstance(mask, PackedSequences | BlockMask):
        return mask
    needs = only_needed(dropout=dropout, scores=not config.has_dot_products, step=is_decode_step)
    named = "eager" if output_attentions else str(config._attn_implementation)
    dtype, head_dim = dtype_of_scores(x), config.head_dim or 0
    name = name_kernel(Situation(named, "padded", x.device, dtype, head_dim, needs))
    reads = None if name is None else KERNELS[name].reads
    if reads == "addends" and (mask is None or mask.dtype == torch.bool):
        forbids_future = mask is None and is_causal and named != "eager" and x.shape[1] > 1
        return additive(mask, forbids_future, x.shape[1], like=x.new_empty((), dtype=dtype))
    if reads == "wide addends" and mask is not None and mask.dtype != torch.bool:
        return mask.to(torch.promote_types(dtype, torch.float32))
    return mask


def name_kernel(situation: Situation) -> str | None:
    """Name the first kernel of the table that serves a situation; `None`: none does."""
    return next((name for name, kernel in KERNELS.items() if kernel.serves(situation)), None)


def choose_kernel(situation: Situation) -> Callable[..., Any]:
    """Choose the first kernel of the table that serves a situation, or transformers' of that name."""
    if (name := name_kernel(situation)) is not None:
        return KERNELS[name].compute
    if "scores" in situation.needs:
        raise ValueError(
            f"attn_implementation='{situation.implementation}' computes dot products, which the model's "
            "attention_score is none of: choose attn_implementation='sdpa' or 'eager'"
        )
    return ALL_ATTENTION_FUNCTIONS.get_interface(situation.implementation, scaled_dot_product)


def has_kernel(layout: TensorLayout, implementation: str | None) -> bool:
    """Return whether the table has a kernel of a layout for a value of `attn_implementation`."""
    return any(
        kernel.layout == layout and kernel.computes_for(str(implementation)) for kernel in KERNELS.values()
    )


def kernel_of_packed(
    config: TercetConfig,
    pattern: AttentionPattern,
    x: Tensor,
    *,
    dropout: float,
    is_traced: bool = False,
    chooses_global: bool = False,
) -> str | None:
    """Name the kernel of packed sequences for a pattern; `None`: the table has none.

    Tiles come first, where more than direction and window decides who attends to whom. `x` are the states, or
    weights beside them; the sequences' own tokens may be chosen to be global.
    """
    needs = only_needed(
        dropout=dropout,
        bias=config.has_score_bias,
        pairs=not pattern.is_window or chooses_global,
        scores=not config.has_dot_products,
        graph=is_traced,
    )
    implementation, head_dim = str(config._attn_implementation), config.head_dim or 0
    situation = Situation(implementation, "packed", x.device, dtype_of_scores(x), head_dim, needs)
    has_tiles = "bias" in needs or "pairs" in needs
    return (has_tiles and name_kernel(situation.also("tiles"))) or name_kernel(situation)


def with_tiles(
    config: TercetConfig,
    patterns: Mapping[str, AttentionPattern],
    sequences: PackedSequences,
    x: Tensor,
    dropout: float,
) -> Masks:
    """Build packed sequences for each type of layer, with its tiles where flex attention is to compute.

    `x` (1, N, C) are the states that layers read.
    """
    chosen = sequences.global_tokens is not None
    return {
        kind: replace(sequences, tiles=find_tiles(pattern, sequences, x.shape[1]))
        if kernel_of_packed(config, pattern, x, dropout=dropout, chooses_global=chosen) == TILED
        else sequences
        for kind, pattern in patterns.items()
    }


def grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: PackedSequences,
    *,
    situation: Situation,
    pattern: AttentionPattern,
    scaling: float,
    dropout: float,
    packed_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Let each query of a stream (1, H, N, D) attend within its sequence, in groups of similar length.

    Each group has a kernel of its own, and a mask by the layer's pattern; shorter sequences take a part of
    `packed_bias`. Returns (1, N, H, D), and no weights.
    """
    groups = sequences.groups
    sides = ((groups.queries, query), (groups.keys, key), (groups.keys, value))
    parts = zip(*(slots.split(x.transpose(1, 2)[0]) for slots, x in sides), strict=True)  # (b, t, heads, D)
    chosen = None if sequences.global_tokens is None else groups.keys.split(sequences.global_tokens)
    results = []
    for number, (q, k, v) in enumerate(parts):
        length = k.shape[1]
        of_group = situation._replace(layout="group", num_keys=length)
        if chosen is None and is_sparse(pattern, length):
            of_group = of_group.also("blocks")
        compute = choose_kernel(of_group)
        group = Group(groups.keys, number, pattern, None if chosen is None else next(chosen))
        bias = None if packed_bias is None else packed_bias[..., :length, :length]
        results.append(compute(q, k, v, group, bias, module=module, scaling=scaling, dropout=dropout))
    return groups.queries.join(results)[None], None


def lacks_wide_heads(situation: Situation) -> bool:
    """Return whether a GPU has no gradients of heads of a situation's width by torch's flash kernel."""
    width, drops = situation.head_dim, "dropout" in situation.needs
    is_lacked = width in LACKED_HEADS or (width >= LACKED_HEADS.stop and drops)
    return is_lacked and lacks_memory(situation.device)


KERNELS: dict[str, Kernel] = {
    "single_query": Kernel(
        single_query_attention,
        "padded",
        cannot=("dropout", "scores"),
        only_for=("step",),
        devices=("cpu",),
        reads="wide addends",
    ),
    "flash": Kernel(
        flash_attention, "packed", cannot=("bias", "pairs", "scores", "tiles"), implementations=(FLASH,)
    ),
    "varlen": Kernel(
        stream_attention,
        "packed",
        cannot=("bias", "pairs", "scores", "tiles"),
        implementations=("sdpa",),
        devices=("cuda",),
        dtypes=(torch.float16, torch.bfloat16),
        most_channels=WIDEST_HEAD,
        multiple_of_channels=CHANNELS,
        is_available=has_varlen_kernel,
        lacks_gradients=lacks_wide_heads,
    ),
    TILED: Kernel(
        tiled_attention,
        "packed",
        cannot=("dropout", "scores"),
        only_for=("tiles",),
        implementations=("sdpa",),
        devices=("cuda",),
        most_channels=WIDEST_HEAD,
        multiple_of_channels=SMALLEST_HEAD,
        is_available=has_flex_kernel,
    ),
    "grouped": Kernel(grouped_attention, "packed", cannot=("tiles", "graph")),
    "operator": Kernel(
        operator_attention, "packed", cannot=("pairs", "scores", "tiles"), only_for=("graph",)
    ),
    "short": Kernel(short_group, "group", devices=("cpu",), most_keys=SHORT),
    "sparse": Kernel(
        sparse_group, "group", cannot=("dropout", "bias", "scores"), only_for=("blocks",), devices=("cpu",)
    ),
    "fused": Kernel(fused_group, "group"),
    "pairs": Kernel(
        pair_attention,
        "padded",
        cannot=(),
        only_for=("scores",),
        implementations=("eager",),
        reads="addends",
    ),
    "blocked": Kernel(
        blocked_attention,
        "padded",
        cannot=(),
        only_for=("scores",),
        implementations=("sdpa",),
        reads="addends",
    ),
    "blocked_group": Kernel(blocked_group, "group", cannot=(), only_for=("scores",)),
}
"""What is chosen from, the first that serves first."""
