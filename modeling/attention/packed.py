"""Attention over packed sequences: by kernels that read their bounds, or in groups of similar length.

`attention_kernels` says which of these is chosen when.

Shapes: N tokens of queries, M of keys, H query heads, G key-value heads, D head width; b, t, s of a group.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..configuration_tercet import TercetConfig
from .abstract_pattern import union
from .block_sparse import block_sparse_attention
from .dot_product import additive
from .implementations import require_flash_options
from .operator import ENDLESS, packed_attention
from .packing import PackedSequences
from .patterns import AttentionPattern
from .sequence_groups import Slots
from .short_sequences import short_attention
from .varlen import varlen_attention


def flash_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: PackedSequences,
    *,
    situation: object,
    pattern: AttentionPattern,
    packed_bias: None = None,
    sliding_window: int | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend by the flash kernel that the configuration names: (1, H, N, D) to (1, N, H, D).

    Raises:
        ValueError: It cannot drop weights, or knows no window, as it should.
    """
    implementation = str(cast(TercetConfig, module.config)._attn_implementation)
    flash = ALL_ATTENTION_FUNCTIONS[implementation]
    if flash is flash_attention_forward and (dropout or sliding_window is not None):
        require_flash_options(implementation, dropout, sliding_window)
    options |= sequences.flash_arguments | {"sliding_window": sliding_window, "dropout": dropout}
    if pattern.is_causal != module.is_causal:
        options["is_causal"] = pattern.is_causal
    return flash(module, query, key, value, None, **options)


def stream_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: PackedSequences,
    *,
    pattern: AttentionPattern,
    scaling: float,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend by torch's own flash kernel: (1, H, N, D) to (1, N, H, D)."""
    q, k, v = (x.transpose(1, 2)[0] for x in (query, key, value))
    attended = varlen_attention(
        q,
        k,
        v,
        sequences,
        scaling=scaling,
        is_causal=pattern.is_causal,
        sliding_window=sliding_window,
        dropout=dropout,
    )
    return attended[None], None


def operator_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: PackedSequences,
    *,
    pattern: AttentionPattern,
    scaling: float,
    dropout: float,
    packed_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend by an operator that compilers keep whole: (1, H, N, D) to (1, N, H, D)."""
    seed = torch.randint(2**63 - 1, (), device=query.device) if dropout else None
    attended = packed_attention(
        *(x.transpose(1, 2)[0] for x in (query, key, value)),
        sequences.cu_seq_lens_q,
        sequences.cu_seq_lens_k,
        packed_bias,
        seed,
        scaling,
        dropout,
        pattern.is_causal,
        ENDLESS if pattern.window is None else pattern.window,
    )
    return attended[None], None


@dataclass(frozen=True)
class Group:
    """What a kernel of a group has to know of it: where pads stand, and which pairs attend.

    Args:
        slots: Of the keys of all groups.
        number: Which of the groups it is.
        pattern: Of the layer.
        chosen: Tokens that are chosen to be global, (b, t); `None`: none.
    """

    slots: Slots
    number: int
    pattern: AttentionPattern
    chosen: Tensor | None = None

    @property
    def lengths(self) -> Tensor:
        """Real keys of each sequence, (b,); pads stand behind them."""
        return self.slots.lengths[self.number]

    @property
    def positions(self) -> Tensor:
        """Those of the longest sequence, (t,)."""
        return torch.arange(self.slots.sizes[self.number][1], device=self.slots.is_pad.device)

    @property
    def is_full(self) -> bool:
        """Whether the pattern forbids no pair, but for those that its direction does."""
        return self.pattern.is_full(self.slots.sizes[self.number][1])

    @property
    def global_tokens(self) -> Tensor | None:
        """Tokens that are global by choice or by the pattern, (b, t); `None`: none."""
        return union(self.chosen, self.pattern.own_global_tokens(self.positions, self.lengths[:, None]))

    def mask(self) -> Tensor | None:
        """Allow real keys that the pattern allows, to (b, 1, t, t); `None` if it is all, or those so far.

        Pads stand behind, so a causal group needs no mask for them. Any other mask forbids the future itself.
        """
        keys = None if self.pattern.is_causal else self.slots.key_mask(self.number)
        if self.is_full:
            return keys
        pairs = self.pattern.allows(self.positions[:, None], self.positions)
        if (is_global := self.global_tokens) is not None:
            pairs = self.pattern.widen(pairs, self.positions, is_global)[:, None]
        return pairs if keys is None else pairs & keys

    def bias(self, given: Tensor | None, like: Tensor) -> Tensor | None:
        """Add what the pattern adds to scores of the type of `like` to what is given, (1, H, t, t)."""
        if self.is_full or not self.pattern.adds_to_scores:
            return given
        added = self.pattern.added_to(self.positions, self.global_tokens, like.dtype)[:, None]
        return added if given is None else given + added


def short_group(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    group: Group,
    bias: Tensor | None,
    *,
    scaling: float,
    dropout: float,
    **_: Any,
) -> Tensor:
    """Let (b, t, H, D) attend to (b, s, G, D), with a bias (1, H, t, s)."""
    mask = group.mask()
    is_causal = group.pattern.is_causal and mask is None
    added = additive(mask, is_causal, key.shape[1], like=query, bias=group.bias(bias, query))
    return short_attention(query, key, value, added, scaling=scaling, dropout=dropout)


def sparse_group(
    query: Tensor, key: Tensor, value: Tensor, group: Group, bias: None, *, scaling: float, **_: Any
) -> Tensor:
    """Let (b, t, H, D) attend to (b, t, G, D) by the blocks of a sparse pattern."""
    return block_sparse_attention(query, key, value, group.lengths, group.pattern, scaling)


def fused_group(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    group: Group,
    bias: Tensor | None,
    *,
    scaling: float,
    dropout: float,
    **_: Any,
) -> Tensor:
    """Do the same by torch's fused kernel."""
    mask = group.mask()
    is_causal = group.pattern.is_causal and mask is None
    if (bias := group.bias(bias, query)) is not None:
        mask, is_causal = additive(mask, is_causal, key.shape[1], like=query, bias=bias), False
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, dim=1) if groups > 1 else x for x in (key, value))
    attended = F.scaled_dot_product_attention(
        query, key, value, mask, dropout_p=dropout, is_causal=is_causal, scale=scaling
    )
    return attended.transpose(1, 2)
