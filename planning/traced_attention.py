"""Kernels of attention for traces, whose tensors have shapes and no values.

They keep for the backward pass what the kernels of packed sequences keep, which read the lengths of sequences
and are therefore no use there.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.nn import functional as F
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..modeling.attention import Attention
from ..modeling.block_sparse_attention import is_sparse
from ..modeling.short_attention import short_attention

SHORT_KERNEL = "tercet_short"
"""Name of short attention among transformers' kernels."""

LONG_KERNEL = "tercet_long"
"""Name of what a CPU computes long sequences with: by blocks, or by the fused kernel."""

MASKLESS_KERNEL = "tercet_maskless"
"""Name of the fused kernel without masks: transformers makes masks for kernels that it knows by name."""


def attend_shortly(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    scaling: float,
    dropout: float = 0.0,
    **_: object,
) -> tuple[Tensor, None]:
    """Attend by short attention: heads (1, H, T, D) to (1, T, H, D)."""
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    return short_attention(query, key, value, attention_mask, scaling=scaling, dropout=dropout), None


def attend_at_length(
    module: Attention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Keep blocks where they are computed, without computing them; otherwise attend by the fused kernel."""
    pattern, length = module.pattern, key.shape[2]
    with unset_fake_temporarily():
        by_blocks = is_sparse(pattern, length) and not module.config.has_score_bias
    if not by_blocks:
        return ALL_ATTENTION_FUNCTIONS["sdpa"](module, query, key, value, attention_mask, **options)
    assert pattern.block_size is not None
    return _KeptBlocks.apply(query, key, value, -length % pattern.block_size).transpose(1, 2), None


class _KeptBlocks(torch.autograd.Function):
    """Keeps what block-sparse attention keeps: queries, keys and values, filled up to whole blocks."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, padding: int) -> Tensor:
        ctx.save_for_backward(*(F.pad(x, (0, 0, 0, padding)).clone() for x in (query, key, value)))
        return torch.empty_like(query)


AttentionInterface.register(SHORT_KERNEL, attend_shortly)
AttentionInterface.register(LONG_KERNEL, attend_at_length)
AttentionMaskInterface.register(LONG_KERNEL, sdpa_mask)
AttentionInterface.register(MASKLESS_KERNEL, ALL_ATTENTION_FUNCTIONS["sdpa"])
