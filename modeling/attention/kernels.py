"""The kernels of attention: what each one reads, and which one computes in a situation (`name_kernel`).

kernel         layout  of pairs it reads   serves                                       gradients
single_query   padded  a mask              steps of decoding on a CPU                   torch's
pairs          padded  what scores add     scores that are no dot products: definition  torch's
blocked        padded  what scores add     the same in little memory                    written
flash          packed  bounds              flash kernels of transformers and the Hub    its own
varlen         packed  bounds              half precision on a GPU                      torch's
flex           packed  tiles               patterns and biases on a GPU                 torch's
grouped        packed  bounds              all else                                     written
operator       packed  bounds              the same in graphs of compilers              its own
short          group   what scores add     few keys, or dropout, on a CPU               written
sparse         group   blocks              long texts of sparse patterns on a CPU       written
fused          group   a mask              all else                                     torch's
blocked_group  group   what scores add     scores that are no dot products              written

A `padded` batch (B, T) has a mask of its pairs, a `packed` stream the bounds of its sequences. A `group` is a
length-sorted batch of some of these sequences: `grouped` makes a few of a stream, since a block-diagonal mask
would cost the square of it. Rows that short sequences of a stream share (`SharedRows`) are computed as
`short` does, whatever the situation. A stack packs long texts of sparse patterns, too, if nothing is cached.
Padded dot products are left to the kernels registered with transformers' `AttentionInterface`. There `eager`
is the definition, `scaled_dot_product`, which alone returns weights; for other scores `pairs` is.

Gradients that are written out here are unknown to compilers and to `torch.func`, for which a stack of blocks
describes packed sequences by a mask, as it does where weights are to be returned. Blocks that are compiled
one by one read bounds. The stack finds tiles where `flex` is to compute (`with_tiles`), and converts masks
(`kernel_form`), once for all layers of a type.

Shapes: B batch, T queries, S keys, H query heads, G key-value heads, D head width; b, t, s of a group; N
queries and M keys of a stream.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
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
    shared_attention,
    short_group,
    sparse_group,
    stream_attention,
)
from .packing import Mask, Masks, PackedSequences, SharedRows
from .pairs import blocked_attention, blocked_group, pair_attention
from .patterns import AttentionPattern
from .relative_bias import dtype_of_scores

TensorLayout = Literal["padded", "packed", "group"]

TILED, FLASH = "flex", "flash"
"""The kernel that reads tiles, and that of all values of `attn_implementation` that read bounds."""

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
        return self._replace(needs=(*self.needs, need))


def only_needed(**needs: object) -> tuple[Any, ...]:
    return tuple(name for name, is_needed in needs.items() if is_needed)


def situation_of(config: TercetConfig, layout: TensorLayout, x: Tensor, **needs: object) -> Situation:
    """Return the situation of layers that read states `x`, or that have weights beside them."""
    needed = only_needed(scores=not config.has_dot_products, **needs)
    dtype, head_dim = dtype_of_scores(x), config.head_dim or 0
    return Situation(str(config._attn_implementation), layout, x.device, dtype, head_dim, needed)


def name_kernel(situation: Situation) -> str | None:
    """Name the kernel that computes in a situation; `None`: one of transformers' does, or none."""
    needs, is_cpu = set(situation.needs), situation.device.type == "cpu"
    implementation = situation.implementation
    if takes_bounds(implementation):
        is_served = situation.layout == "packed" and not needs & {"bias", "pairs", "scores", "tiles"}
        return FLASH if is_served else None
    if implementation not in ("eager", "sdpa"):
        return None
    if situation.layout == "padded":
        if "scores" in needs:
            return "pairs" if implementation == "eager" else "blocked"
        return "single_query" if is_cpu and "step" in needs and "dropout" not in needs else None
    if situation.layout == "packed":
        if "tiles" in needs:
            can_tile = implementation == "sdpa" and not needs & {"dropout", "scores"}
            return TILED if can_tile and runs_flex(situation) else None
        if implementation == "sdpa" and not needs & {"bias", "pairs", "scores"} and runs_varlen(situation):
            return "varlen"
        if "graph" in needs:
            return None if needs & {"pairs", "scores"} else "operator"
        return "grouped"
    if "scores" in needs:
        return "blocked_group"
    if is_cpu and (situation.num_keys <= SHORT or "dropout" in needs):
        return "short"
    return "sparse" if is_cpu and "blocks" in needs and "bias" not in needs else "fused"


def runs_varlen(situation: Situation) -> bool:
    """Return whether the device runs torch's flash kernel on heads of such a type and width."""
    _, _, device, dtype, width, needs, _ = situation
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return False
    if width > WIDEST_HEAD or width % CHANNELS or not has_varlen_kernel(device):
        return False
    is_wide = width in LACKED_HEADS or (width >= LACKED_HEADS.stop and "dropout" in needs)
    return not (is_wide and lacks_memory(device))


def runs_flex(situation: Situation) -> bool:
    """Return whether the device runs flex attention on heads of such a width."""
    device, width = situation.device, situation.head_dim
    is_gpu = device.type == "cuda" and width <= WIDEST_HEAD and width % SMALLEST_HEAD == 0
    return is_gpu and has_flex_kernel(device)


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
        query: Queries of packed sequences, (1, H, N, D).
        key: Keys of packed sequences, (1, G, M, D).
        value: Values, of the size of `key`.
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
    if isinstance(mask, SharedRows):
        return shared_attention(query, key, value, mask, pattern, scaling=scaling, dropout=dropout)
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
    if isinstance(mask, PackedSequences | SharedRows | BlockMask):
        return mask
    situation = situation_of(config, "padded", x, dropout=dropout, step=is_decode_step)
    if output_attentions:
        situation = situation._replace(implementation="eager")
    name, dtype = name_kernel(situation), situation.dtype
    if name in ("pairs", "blocked") and (mask is None or mask.dtype == torch.bool):
        forbids_future = mask is None and is_causal and name == "blocked" and x.shape[1] > 1
        return additive(mask, forbids_future, x.shape[1], like=x.new_empty((), dtype=dtype))
    if name == "single_query" and mask is not None and mask.dtype != torch.bool:
        return mask.to(torch.promote_types(dtype, torch.float32))
    return mask


def choose_kernel(situation: Situation) -> Callable[..., Any]:
    """Choose the kernel of a situation, which may be transformers'."""
    if (name := name_kernel(situation)) is not None:
        return KERNELS[name]
    if "scores" in situation.needs:
        raise ValueError(
            f"attn_implementation='{situation.implementation}' computes dot products, which the model's "
            "attention_score is none of: choose attn_implementation='sdpa' or 'eager'"
        )
    return ALL_ATTENTION_FUNCTIONS.get_interface(situation.implementation, scaled_dot_product)


def reads_packed(implementation: str | None) -> bool:
    """Return whether kernels of packed sequences compute for a value of `attn_implementation`."""
    return implementation in ("eager", "sdpa") or takes_bounds(implementation)


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
    has_bias, has_pairs = config.has_score_bias, not pattern.is_window or chooses_global
    needs = {"dropout": dropout, "bias": has_bias, "pairs": has_pairs, "graph": is_traced}
    situation = situation_of(config, "packed", x, **needs)
    return ((has_bias or has_pairs) and name_kernel(situation.also("tiles"))) or name_kernel(situation)


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
    streams = (slots.split(x.transpose(1, 2).squeeze(0)) for slots, x in sides)
    parts = zip(*streams, strict=True)  # (b, t, heads, D)
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


KERNELS: dict[str, Callable[..., Any]] = {
    "single_query": single_query_attention,
    "pairs": pair_attention,
    "blocked": blocked_attention,
    FLASH: flash_attention,
    "varlen": stream_attention,
    TILED: tiled_attention,
    "grouped": grouped_attention,
    "operator": operator_attention,
    "short": short_group,
    "sparse": sparse_group,
    "fused": fused_group,
    "blocked_group": blocked_group,
}
"""By name: see `name_kernel`."""
