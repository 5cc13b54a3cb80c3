"""Attention over packed sequences: the one kernel that tells documents of a flat stream apart.

Flash kernels read cumulative lengths themselves: the one that a model is told to use, or torch's own on a GPU
in half precision where nothing is dropped. Elsewhere the stream becomes a few length-sorted padded batches
(see `sequence_groups`), since a block-diagonal mask would cost the square of the stream. It is registered
with transformers' `AttentionInterface` as `tercet_packed`; models choose it when a batch is packed.

Shapes: N tokens of queries, M of keys, H query heads, G key-value heads, D head width; b, t, s of a group.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

from .configuration_tercet import TercetConfig
from .dot_product import additive
from .packing import PackedSequences
from .sequence_groups import Slots
from .short_attention import SHORT, short_attention
from .varlen_attention import can_use_varlen, varlen_attention

PACKED_KERNEL = "tercet_packed"


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: PackedSequences,
    *,
    scaling: float,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    packed_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Let each query of a stream read the keys of its own sequence, or those that are near.

    `query` is (1, H, N, D), `key` and `value` (1, G, M, D). `sliding_window` counts what is seen on one side,
    the query itself included; `packed_bias` (1, H, T, T) is added to the scores of the longest sequence, and
    a part of it to those of others. Returns what was read, (1, N, H, D), and no weights.
    """
    implementation = str(cast(TercetConfig, module.config)._attn_implementation)
    if implementation.startswith("flash"):
        flash = ALL_ATTENTION_FUNCTIONS[implementation]
        arguments = attention_mask.flash_arguments | kwargs | {"sliding_window": sliding_window}
        return flash(module, query, key, value, None, scaling=scaling, dropout=dropout, **arguments)

    streams = [x.transpose(1, 2)[0] for x in (query, key, value)]  # (N or M, heads, D)
    is_causal = bool(module.is_causal)
    if implementation == "sdpa" and packed_bias is None and can_use_varlen(query, dropout):
        q, k, v = streams
        read = varlen_attention(
            q, k, v, attention_mask, scaling=scaling, is_causal=is_causal, sliding_window=sliding_window
        )
        return read[None], None

    groups = attention_mask.groups
    queries, keys, values = (
        slots.split(x) for slots, x in zip((groups.queries, groups.keys, groups.keys), streams, strict=True)
    )
    masks = (
        mask_of_group(groups.keys, group, is_causal, sliding_window)
        for group in range(len(groups.keys.sizes))
    )
    results = [
        attend(module, q, k, v, mask, packed_bias, scaling=scaling, dropout=dropout)
        for q, k, v, mask in zip(queries, keys, values, masks, strict=True)
    ]
    return groups.queries.join(results)[None], None


def mask_of_group(slots: Slots, group: int, is_causal: bool, sliding_window: int | None) -> Tensor | None:
    """Allow real and near keys, to (b, 1, t, t); `None` if nothing is to be forbidden, or the future only.

    Pads stand behind, so a causal group needs no mask for them.
    """
    keys = None if is_causal else slots.key_mask(group)
    _, longest = slots.sizes[group]
    if sliding_window is None or longest <= sliding_window:
        return keys
    pairs = torch.ones(longest, longest, dtype=torch.bool, device=slots.is_pad.device)
    near = pairs.triu(1 - sliding_window).tril(0 if is_causal else sliding_window - 1)
    return near if keys is None else near & keys


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    *,
    scaling: float,
    dropout: float,
) -> Tensor:
    """Let (b, t, H, D) read (b, s, G, D), with the first part (1, H, t, s) of a bias on the scores.

    A mask of causal attention forbids the future itself.
    """
    is_causal, length = bool(module.is_causal) and mask is None, key.shape[1]
    is_short = query.is_cpu and (length <= SHORT or dropout > 0)
    if is_short or bias is not None:
        bias = None if bias is None else bias[..., :length, :length]
        mask = additive(mask, is_causal, length, like=query, bias=bias)
        is_causal = False
    if is_short:
        return short_attention(query, key, value, mask, scaling=scaling, dropout=dropout)
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, dim=1) if groups > 1 else x for x in (key, value))
    read = F.scaled_dot_product_attention(
        query, key, value, mask, dropout_p=dropout, is_causal=is_causal, scale=scaling
    )
    return read.transpose(1, 2)


def can_pack(implementation: str | None) -> bool:
    """Tell whether `packed_attention` may stand in for this kernel: flex has block masks of its own."""
    return implementation in ("eager", "sdpa") or str(implementation).startswith("flash")


AttentionInterface.register(PACKED_KERNEL, packed_attention)
