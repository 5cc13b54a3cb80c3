"""The kernels of attention: what each one can do, and which one computes in a situation.

kernel        layout  implementation  mask               bias  dropout  device     gradients  cache
single_query  padded  eager, sdpa     boolean, additive  yes   no       CPU        torch's    yes
flash         packed  flash kernels   bounds             no    its own  GPU        its own    no
varlen_fa3    packed  sdpa            bounds             no    no       GPU, half  torch's    no
varlen        packed  sdpa            bounds             no    yes      GPU, half  torch's    no
flex          packed  sdpa            tiles              yes   no       GPU        torch's    no
grouped       packed  eager, sdpa     bounds             yes   yes      all        written    no
operator      packed  eager, sdpa     bounds             yes   yes      all        its own    no
short         group   eager, sdpa     boolean            yes   yes      CPU        written    no
sparse        group   eager, sdpa     blocks             no    no       CPU        written    no
fused         group   eager, sdpa     boolean            yes   yes      all        torch's    no
pairs         padded  eager           boolean, additive  yes   yes      all        torch's    no
blocked       padded  sdpa            boolean, additive  yes   yes      all        written    no
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
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..configuration_tercet import TercetConfig
from ..tracing import is_tracing
from .block_sparse import is_sparse
from .dot_product import scaled_dot_product, single_query_attention
from .implementations import takes_bounds
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
from .short_sequences import SHORT
from .tiles import SMALLEST_HEAD, find_tiles, has_flex_kernel, tiled_attention
from .varlen import CHANNELS, WIDEST_HEAD, has_third_kernel, has_varlen_kernel

TensorLayout = Literal["padded", "packed", "group"]

FLASH = "flash"
"""Stands for all values of `attn_implementation` whose attention reads bounds."""


class Situation(NamedTuple):
    """What the choice of a kernel depends on.

    Args:
        implementation: The configuration's `attn_implementation`.
        layout: How queries and keys lie in memory.
        device: Where they are.
        dtype: Their type.
        head_dim: D.
        num_keys: S, or those of the longest sequence of a group; 0 in a packed stream.
        dropout: Probability that a weight is dropped.
        has_bias: Whether positions add a bias to the scores of packed sequences.
        is_window: Whether direction and window say which pairs attend: see `AttentionPattern`.
        is_decode_step: Whether each sequence has a single query, behind a cache that grows.
        is_dot_product: Whether scores are dot products.
        is_sparse: Whether a pattern leaves out enough of the pairs of a group: see `is_sparse`.
        is_traced: Whether a compiler writes the computation down.
        has_tiles: Whether packed sequences bring those of their pattern.
    """

    implementation: str
    layout: TensorLayout
    device: torch.device
    dtype: torch.dtype
    head_dim: int
    num_keys: int = 0
    dropout: float = 0.0
    has_bias: bool = False
    is_window: bool = True
    is_decode_step: bool = False
    is_dot_product: bool = True
    is_sparse: bool = False
    is_traced: bool = False
    has_tiles: bool = False

    @classmethod
    def of_packed(
        cls,
        config: TercetConfig,
        pattern: AttentionPattern,
        device: torch.device,
        dtype: torch.dtype,
        *,
        dropout: float = 0.0,
        has_bias: bool = False,
        chooses_global: bool = False,
        **others: bool,
    ) -> "Situation":
        """Describe packed sequences for a pattern; it `chooses_global` if some tokens are chosen to be."""
        return cls(
            str(config._attn_implementation),
            "packed",
            device,
            dtype,
            config.head_dim or 0,
            dropout=dropout,
            has_bias=has_bias,
            is_window=pattern.is_window and not chooses_global,
            is_dot_product=config.has_dot_products,
            **others,
        )


@dataclass(frozen=True)
class Kernel:
    """A kernel, and the situations that it serves; a limit of `None` is none.

    Args:
        compute: The function.
        layout: The one layout that it reads.
        implementations: Values of `attn_implementation` for which it computes.
        is_for_decode_steps: Whether it serves steps of decoding only.
        devices: Types of devices.
        dtypes: Types of queries and keys.
        most_channels: Largest head width.
        multiple_of_channels: What the head width is a multiple of.
        most_keys: Keys up to which it is the fastest, where nothing is dropped.
        takes_dropout: Whether it can drop weights.
        takes_bias: Whether it can add a bias.
        takes_pairs: Whether it can forbid any pairs, not only those outside a window.
        is_for_sparse: Whether it serves sparse patterns only.
        is_for_tiles: Whether it reads tiles, which others do not, and serves what takes a bias or pairs only.
        scores: Which scores it takes: dot products, those of pairs, which are none, or all.
        is_available: Whether this machine has it.
        is_for_graphs: Whether it serves compiled graphs alone, or never does; `None`: it serves both.
    """

    compute: Callable[..., Any]
    layout: TensorLayout
    implementations: tuple[str, ...] = ("eager", "sdpa")
    is_for_decode_steps: bool = False
    devices: tuple[str, ...] | None = None
    dtypes: tuple[torch.dtype, ...] | None = None
    most_channels: int | None = None
    multiple_of_channels: int = 1
    most_keys: int | None = None
    takes_dropout: bool = True
    takes_bias: bool = True
    takes_pairs: bool = True
    is_for_sparse: bool = False
    is_for_tiles: bool = False
    scores: Literal["dot products", "pairs", "all"] = "dot products"
    is_available: Callable[[torch.device], bool] | None = None
    is_for_graphs: bool | None = None

    def serves(self, situation: Situation) -> bool:
        """Return whether the kernel can compute, and is meant to."""
        return (
            self.layout == situation.layout
            and self.is_for_graphs in (None, situation.is_traced)
            and (situation.is_decode_step or not self.is_for_decode_steps)
            and (situation.is_sparse or not self.is_for_sparse)
            and self.is_for_tiles == situation.has_tiles
            and (situation.has_bias or not situation.is_window or not self.is_for_tiles)
            and self.computes_for(situation.implementation)
            and self.scores in ("all", "dot products" if situation.is_dot_product else "pairs")
            and (self.takes_dropout or not situation.dropout)
            and (self.takes_bias or not situation.has_bias)
            and (self.takes_pairs or situation.is_window)
            and (self.devices is None or situation.device.type in self.devices)
            and (self.dtypes is None or situation.dtype in self.dtypes)
            and (self.most_channels is None or situation.head_dim <= self.most_channels)
            and situation.head_dim % self.multiple_of_channels == 0
            and (self.most_keys is None or situation.num_keys <= self.most_keys or situation.dropout > 0)
            and (self.is_available is None or self.is_available(situation.device))
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
        mask: Which pairs may attend, as the kernel takes it; or the bounds of packed sequences.
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
    implementation: str = str(module.config._attn_implementation)  # pyright: ignore
    is_packed = isinstance(mask, PackedSequences)
    situation = Situation(
        "eager" if output_attentions and not is_packed else implementation,
        "packed" if is_packed else "padded",
        query.device,
        query.dtype,
        query.shape[-1],
        dropout=dropout,
        has_bias=packed_bias is not None,
        is_window=pattern.is_window
        and not (isinstance(mask, PackedSequences) and mask.global_tokens is not None),
        is_decode_step=is_decode_step,
        is_dot_product=module.config.has_dot_products,  # pyright: ignore
        is_traced=is_tracing(),
        has_tiles=isinstance(mask, PackedSequences) and mask.tiles is not None,
    )
    if is_packed:
        options |= {"packed_bias": packed_bias, "situation": situation, "pattern": pattern}
    elif pattern.is_causal != module.is_causal:
        options["is_causal"] = pattern.is_causal
    assert kernel is None or situation.is_dot_product  # whoever brings a kernel asks `has_dot_products`
    compute = kernel or choose_kernel(situation)
    return compute(module, query, key, value, mask, scaling=scaling, dropout=dropout, **options)


def name_kernel(situation: Situation) -> str | None:
    """Name the first kernel of the table that serves a situation; `None`: none does."""
    return next((name for name, kernel in KERNELS.items() if kernel.serves(situation)), None)


def choose_kernel(situation: Situation) -> Callable[..., Any]:
    """Choose the first kernel of the table that serves a situation, or transformers' of that name."""
    if (name := name_kernel(situation)) is not None:
        return KERNELS[name].compute
    if not situation.is_dot_product:
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


def with_tiles(
    config: TercetConfig,
    patterns: Mapping[str, AttentionPattern],
    sequences: PackedSequences,
    x: Tensor,
    dropout: float,
) -> Masks:
    """Give packed sequences to each type of layer, with its tiles where flex attention is to compute.

    `x` (1, N, C) are the states that layers read.
    """
    masks: Masks = {}
    for kind, pattern in patterns.items():
        situation = Situation.of_packed(
            config,
            pattern,
            x.device,
            dtype_of_scores(x),
            dropout=dropout,
            has_bias=config.has_score_bias,
            chooses_global=sequences.global_tokens is not None,
            has_tiles=True,
        )
        masks[kind] = sequences
        if name_kernel(situation) is not None:
            masks[kind] = replace(sequences, tiles=find_tiles(pattern, sequences, x.shape[1]))
    return masks


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
        of_group = situation._replace(
            layout="group", num_keys=length, is_sparse=chosen is None and is_sparse(pattern, length)
        )
        compute = choose_kernel(of_group)
        group = Group(groups.keys, number, pattern, None if chosen is None else next(chosen))
        bias = None if packed_bias is None else packed_bias[..., :length, :length]
        results.append(compute(q, k, v, group, bias, module=module, scaling=scaling, dropout=dropout))
    return groups.queries.join(results)[None], None


VARLEN = Kernel(
    stream_attention,
    "packed",
    implementations=("sdpa",),
    devices=("cuda",),
    dtypes=(torch.float16, torch.bfloat16),
    most_channels=WIDEST_HEAD,
    multiple_of_channels=CHANNELS,
    takes_bias=False,
    takes_pairs=False,
    is_available=has_varlen_kernel,
)
"""torch's own flash kernel."""

KERNELS: dict[str, Kernel] = {
    "single_query": Kernel(
        single_query_attention, "padded", is_for_decode_steps=True, devices=("cpu",), takes_dropout=False
    ),
    "flash": Kernel(flash_attention, "packed", implementations=(FLASH,), takes_bias=False, takes_pairs=False),
    "varlen_fa3": replace(VARLEN, takes_dropout=False, is_available=has_third_kernel),
    "varlen": VARLEN,
    "flex": Kernel(
        tiled_attention,
        "packed",
        implementations=("sdpa",),
        devices=("cuda",),
        most_channels=WIDEST_HEAD,
        multiple_of_channels=SMALLEST_HEAD,
        takes_dropout=False,
        is_for_tiles=True,
        is_available=has_flex_kernel,
    ),
    "grouped": Kernel(grouped_attention, "packed", scores="all", is_for_graphs=False),
    "operator": Kernel(operator_attention, "packed", takes_pairs=False, is_for_graphs=True),
    "short": Kernel(short_group, "group", devices=("cpu",), most_keys=SHORT),
    "sparse": Kernel(
        sparse_group, "group", devices=("cpu",), takes_dropout=False, takes_bias=False, is_for_sparse=True
    ),
    "fused": Kernel(fused_group, "group"),
    "pairs": Kernel(pair_attention, "padded", implementations=("eager",), scores="pairs"),
    "blocked": Kernel(blocked_attention, "padded", implementations=("sdpa",), scores="pairs"),
    "blocked_group": Kernel(blocked_group, "group", scores="pairs"),
}
"""What is chosen from, the first that serves first."""
