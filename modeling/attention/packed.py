"""Attention over packed sequences: by kernels that read their bounds, or in groups of similar length.

`attention/kernels.py` says which of these is chosen when.

Compilers keep an operator whole. Their graphs hold operations on tensors of known sizes; what happens here
depends on the bounds of the sequences, and is none of their business. The operator's backward pass computes
the weights again, with the same dropout.

A second definition of an operator replaces the first one, whoever called it. Each copy of this code, as lies
beside weights, therefore has a namespace of its own.

Shapes: N tokens of queries, M of keys, H query heads, G key-value heads, D head width; b, t, s of a group of
sequences of similar length.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..configuration_tercet import TercetConfig, require_flash_options
from .abstract_pattern import union
from .dot_product import Attended, additive, block_sparse_attention, short_attention
from .gpu_kernels import ENDLESS, varlen_attention
from .packing import GroupSlots, PackedSequences, SequenceGroups, SharedRows, group_sequences
from .patterns import AttentionPattern


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
    """Attend by the flash kernel that the configuration names: (1, H, N, D) to (1, N, H, D)."""
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
    """Attend by torch's own flash kernel: (1, H, N, D) to (1, N, H, D).

    Its results lie as its inputs: token by token, as what follows reads them.
    """
    q, k, v = (x.transpose(1, 2).squeeze(0).contiguous() for x in (query, key, value))
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
        slots: Slots of the keys of all groups.
        number: Which of the groups it is.
        pattern: Pattern of the layer.
        chosen: Tokens that are chosen to be global, (b, t); `None`: none.
    """

    slots: GroupSlots
    number: int
    pattern: AttentionPattern
    chosen: Tensor | None = None

    @property
    def lengths(self) -> Tensor:
        """Real keys of each sequence, (b,); pads stand behind them."""
        return self.slots.lengths[self.number]

    @property
    def positions(self) -> Tensor:
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

    def added(self, given: Tensor | None, like: Tensor) -> Tensor | None:
        """Add to what is given, (1, H, t, t), what forbids pairs, too; `None`: nothing adds to the scores."""
        mask = self.mask()
        is_causal = self.pattern.is_causal and mask is None
        return additive(mask, is_causal, len(self.positions), like=like, bias=self.bias(given, like))


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
    return short_attention(query, key, value, group.added(bias, query), scaling=scaling, dropout=dropout)


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


def shared_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rows: SharedRows,
    pattern: AttentionPattern,
    *,
    scaling: float,
    dropout: float,
) -> tuple[Tensor, None]:
    """Let each query attend to its own sequence in the row that they share: (1, H, P, D) to (1, P, H, D)."""
    kind = pattern, query.dtype
    if (added := rows.added.get(kind)) is None:
        places = torch.arange(rows.numbers.shape[1])
        is_same = rows.numbers[:, :, None] == rows.numbers[:, None]  # (b, t, t)
        allowed = is_same & pattern.allows(places[:, None], places)
        added = rows.added[kind] = additive(allowed[:, None], False, len(places), like=query)
    q, k, v = (x.transpose(1, 2)[0].unflatten(0, rows.numbers.shape) for x in (query, key, value))
    return short_attention(q, k, v, added, scaling=scaling, dropout=dropout).flatten(0, 1)[None], None


NAMESPACE = re.sub(r"\W", "_", __name__, flags=re.ASCII)
"""Of the operators: the name of this module."""


@dataclass(frozen=True)
class Grouped:
    """Queries, keys and values of a stream in groups of similar length.

    `query` is (N, H, D), `key` and `value` are (M, G, D); `cu_seq_lens_q` and `cu_seq_lens_k` say where
    sequences begin and end. Scores are multiplied by `scaling`, then `bias` (1, H, T, S) adds to them;
    dropout takes the share `dropout` of the weights, drawn by the `seed` if there is one. A query sees no
    later key if `is_causal`, and none that is `window` or more away.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    cu_seq_lens_q: Tensor
    cu_seq_lens_k: Tensor
    bias: Tensor | None
    seed: Tensor | None
    scaling: float
    dropout: float
    is_causal: bool
    window: int

    @cached_property
    def groups(self) -> SequenceGroups:
        return group_sequences(self.cu_seq_lens_q, self.cu_seq_lens_k)

    def split(self) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None]]:
        """Yield each group's queries, keys and values, (b, heads, t, D), and what adds to its scores."""
        queries, keys = self.groups.queries, self.groups.keys
        sides = ((queries, self.query), (keys, self.key), (keys, self.value))
        for number, parts in enumerate(zip(*(slots.split(x) for slots, x in sides), strict=True)):
            query, key, value = (part.transpose(1, 2) for part in parts)
            repeats = query.shape[1] // key.shape[1]
            key, value = (x.repeat_interleave(repeats, dim=1) for x in (key, value))
            yield query.contiguous(), key.contiguous(), value.contiguous(), self.added(number, query, key)

    def added(self, number: int, query: Tensor, key: Tensor) -> Tensor | None:
        """Return what is added to the scores of a group, (b or 1, H or 1, t, s)."""
        bias = None if self.bias is None else self.bias[..., : query.shape[2], : key.shape[2]]
        mask = self.groups.keys.key_mask(number)
        if self.is_causal or self.window != ENDLESS:
            places = (torch.arange(x.shape[2], device=x.device) for x in (query, key))
            distances = torch.sub(*(x.unsqueeze(axis) for x, axis in zip(places, (1, 0), strict=True)))
            near = distances.abs() < (self.window if self.window != ENDLESS else len(distances) + 1)
            allowed = near & (distances >= 0) if self.is_causal else near
            mask = allowed if mask is None else mask & allowed
        return additive(mask, False, key.shape[2], like=query, bias=bias)

    def attended(self) -> Iterator[Attended]:
        for query, key, value, added in self.split():
            yield Attended.compute(query, key, value, added, self.scaling, self.dropout)

    def values(self) -> Tensor:
        return self.groups.queries.join([group.values.transpose(1, 2) for group in self.attended()])

    def gradients(self, gradient: Tensor) -> list[Tensor]:
        queries, keys = self.groups.queries, self.groups.keys
        of_groups: list[list[Tensor]] = [[], [], []]
        d_bias = None if self.bias is None else torch.zeros_like(self.bias)
        for group, part in zip(self.attended(), queries.split_gradient(gradient), strict=True):
            *gradients, d_scores = group.gradients(part.transpose(1, 2), self.scaling)
            for found, each in zip(of_groups, gradients, strict=True):
                found.append(each.transpose(1, 2))
            if d_bias is not None:
                rows, columns = d_scores.shape[2:]
                d_bias[..., :rows, :columns] += d_scores.sum_to_size(*d_bias.shape[:2], rows, columns)
        sides = zip((queries, keys, keys), of_groups, (self.query, self.key, self.value), strict=True)
        joined = [slots.join(parts).unflatten(1, (like.shape[1], -1)).sum(2) for slots, parts, like in sides]
        return joined if d_bias is None else [*joined, d_bias]


@contextmanager
def drawn_from(seed: Tensor | None) -> Iterator[None]:
    """Draw dropout from a seed of its own, the same whenever it is drawn again; `None`: nothing is drawn."""
    if seed is None:
        yield
        return
    devices = [] if seed.is_cpu else [seed.device]
    with torch.random.fork_rng(devices, device_type="cuda" if seed.is_cpu else seed.device.type):
        torch.manual_seed(int(seed))
        yield


OPERANDS = (
    "Tensor query, Tensor key, Tensor value, Tensor cu_seq_lens_q, Tensor cu_seq_lens_k, Tensor? bias, "
    "Tensor? seed, float scaling, float dropout, bool is_causal, SymInt window"
)
"""What the operators are given: the fields of `Grouped`."""


@torch.library.custom_op(f"{NAMESPACE}::packed_attention", mutates_args=(), schema=f"({OPERANDS}) -> Tensor")
def packed_attention(*operands: Any) -> Tensor:
    """Let each query (N, H, D) attend to the keys of its own sequence, (M, G, D); returns (N, H, D)."""
    grouped = Grouped(*operands)
    with torch.no_grad(), drawn_from(grouped.seed):
        return grouped.values()


@torch.library.custom_op(
    f"{NAMESPACE}::packed_attention_backward",
    mutates_args=(),
    schema=f"(Tensor gradient, {OPERANDS}) -> Tensor[]",
)
def packed_attention_backward(gradient: Tensor, *operands: Any) -> list[Tensor]:
    grouped = Grouped(*operands)
    with torch.no_grad(), drawn_from(grouped.seed):
        return grouped.gradients(gradient)


@packed_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Tensor:
    return query.new_empty(query.shape)


@packed_attention_backward.register_fake
def _(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, q: Tensor, k: Tensor, bias: Any, *_: Any
) -> list[Tensor]:
    given = [x for x in (query, key, value, bias) if x is not None]
    return [x.new_empty(x.shape) for x in given]


def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.scaling, ctx.dropout, ctx.is_causal, ctx.window = inputs
    ctx.save_for_backward(*tensors)


def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Compute the gradients of tensors, in their order."""
    settings = (ctx.scaling, ctx.dropout, ctx.is_causal, ctx.window)
    bias = ctx.saved_tensors[5]
    of_query, of_key, of_value, *of_bias = packed_attention_backward(
        gradient.contiguous(), *ctx.saved_tensors, *settings
    )
    return of_query, of_key, of_value, None, None, (of_bias[0] if bias is not None else None), *[None] * 5


packed_attention.register_autograd(backward, setup_context=keep)
