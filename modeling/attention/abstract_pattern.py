"""What every attention pattern has: a predicate of positions, which defines it, and a mask for kernels.

Shapes: B batch, T queries, S keys, C model width.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache
from transformers.masking_utils import and_masks, create_bidirectional_mask, create_causal_mask

from ..compatibility import by_name, is_tracing
from .packing import first_tokens, text_lengths, within
from .relative_bias import dtype_of_scores, join


class AttentionPattern(ABC):
    """Which keys of its own sequence a query may attend to. Abstract.

    Args:
        config: A `TercetConfig`.
        is_causal: Whether keys behind the query are forbidden, as in a decoder.
    """

    window: int | None = None
    """What kernels are told that know windows: the keys on one side, the query included; `None`: no limit."""
    is_window: ClassVar[bool] = True
    """Whether direction and `window` say everything. Kernels that take no masks serve such patterns only."""
    block_size: int | None = None
    """Tokens of the blocks by which kernels may compute a sparse pattern; `None`: it has none."""
    fields: ClassVar[tuple[str, ...]] = ()
    """The fields of a configuration that the pattern reads, and that change nothing without it."""
    adds_to_scores: ClassVar[bool] = False
    """Whether `added` changes scores of pairs that may attend, which kernels of masks alone cannot do."""
    depends_on_length: ClassVar[bool] = False
    """Whether the length of a text makes some of its tokens global: see `own_global_tokens`."""
    is_bidirectional_only: ClassVar[bool] = False
    """Whether the pattern has no causal form, and so serves no decoder."""

    def __init_subclass__(cls) -> None:
        """Refuse a pattern that promises a decoder what no cache can keep."""
        if (cls.adds_to_scores or cls.depends_on_length) and not cls.is_bidirectional_only:
            raise TypeError(
                f"{cls.__name__} adds to scores or depends on the length of a text, which is unknown while a "
                "text is generated: set is_bidirectional_only"
            )

    def __init__(self, config: PreTrainedConfig, *, is_causal: bool):
        if is_causal and self.is_bidirectional_only:
            raise ValueError(
                f"{type(self).__name__} has no causal form, and is_causal=True asks for one: choose another "
                "attention pattern, such as 'big_bird_attention'"
            )
        self.config = config
        self.is_causal = is_causal

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AttentionPattern) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    @property
    def identity(self) -> tuple[object, ...]:
        """All that the pattern's map depends on."""
        return (
            type(self),
            self.is_causal,
            self.window,
            *(getattr(self.config, name) for name in self.fields),
        )

    def toward(self, is_causal: bool | None) -> "AttentionPattern":
        """Return the same pattern causal or bidirectional; `None` keeps its own direction."""
        if is_causal is None or is_causal == self.is_causal:
            return self
        return type(self)(self.config, is_causal=is_causal)

    @classmethod
    @abstractmethod
    def require(cls, config: PreTrainedConfig, layer_types: str) -> None:
        """Raise a `ValueError` unless the fields suit the pattern; `layer_types` names that of the types."""

    @abstractmethod
    def allows(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return which pairs may attend, by positions in a sequence, which broadcast. The definition."""

    @abstractmethod
    def is_full(self, length: int) -> bool:
        """Return whether a sequence of a length has no pairs to forbid, but for what `is_causal` does."""

    def own_global_tokens(self, positions: Tensor, lengths: Tensor | int) -> Tensor | None:
        """Find the tokens that are global because of the length of their text; `None`: there are none.

        A global token attends to all tokens of its text, and all attend to it, whatever `allows` says.
        `positions` in the text and its `lengths` broadcast.
        """
        return None

    def added(self, queries: Tensor, keys: Tensor, dtype: torch.dtype) -> Tensor:
        """Return what is added to the scores of pairs whose query is not global, if `adds_to_scores`."""
        raise NotImplementedError(f"{type(self).__name__} adds nothing to scores")

    def widen(self, allowed: Tensor, positions: Tensor, is_global: Tensor) -> Tensor:
        """Add the pairs of global tokens (..., T) to allowed ones (..., T, T), in the pattern's direction.

        `positions` are those of the tokens in their texts, (..., T).
        """
        widened = allowed | is_global[..., :, None] | is_global[..., None, :]
        return widened & (positions[..., :, None] >= positions[..., None, :]) if self.is_causal else widened

    def map_of(self, length: int, global_tokens: Tensor | None = None) -> Tensor:
        """Return which pairs of a whole text may attend, (T, T): the definition of everything faster.

        `global_tokens` (T,) are true at tokens that are chosen to be global.
        """
        positions = torch.arange(length)
        allowed = self.allows(positions[:, None], positions)
        for is_global in (global_tokens, self.own_global_tokens(positions, length)):
            allowed = allowed if is_global is None else self.widen(allowed, positions, is_global)
        return allowed

    def key_blocks(self, num_blocks: int) -> list[list[int]]:
        """List the blocks of keys that each block of queries sees, if there is a `block_size`.

        All pairs that `allows` does lie within them.
        """
        raise NotImplementedError(f"{type(self).__name__} has no blocks")

    def stock_mask(self, global_tokens: Tensor | None) -> Callable[..., Any] | None:
        """Return transformers' function that makes the mask; `None`: it has none for the pattern."""
        return None

    def build_mask(
        self,
        config: PreTrainedConfig,
        x: Tensor,
        attention_mask: Tensor | None,
        cache: Cache | None,
        sequence_ids: Tensor | None,
        global_tokens: Tensor | None = None,
    ) -> Tensor | BlockMask | None:
        """Build the mask of a padded batch, in the form that the kernel of `config` takes.

        It forbids pads, other sequences, and what the map does; short sequences are full attention's. Where
        transformers makes it without the map, it does.

        Args:
            config: Whose `attn_implementation` tells the form.
            x: States of the queries (B, T, C).
            attention_mask: (B, S), 0 at pads.
            cache: The cache before the queries.
            sequence_ids: (B, T), which number the sequences of a row that are kept apart; `None`: one a row.
            global_tokens: (B, T), true at tokens that are chosen to be global; there is no cache then.
        """
        apart = None if sequence_ids is None else within(sequence_ids, sequence_ids)
        if (create := self.stock_mask(global_tokens)) is not None:
            return create(config, x, attention_mask, **by_name(cache), and_mask_function=apart)
        create = create_causal_mask if self.is_causal else create_bidirectional_mask
        length = x.shape[1] if attention_mask is None else max(x.shape[1], attention_mask.shape[-1])
        functions = [] if apart is None else [apart]
        begins = first_tokens(attention_mask, sequence_ids)
        positions = positions_from(begins, x)
        if has_map := cache is not None or is_tracing() or not self.is_full(length):
            lengths = length
            if self.depends_on_length:
                lengths = text_lengths(attention_mask, sequence_ids, length)
            global_tokens = union(global_tokens, self.own_global_tokens(positions, lengths))
            functions.append(self.map_function(begins, global_tokens))
        and_mask_function = and_masks(*functions) if functions else None
        mask = create(config, x, attention_mask, **by_name(cache), and_mask_function=and_mask_function)
        if has_map and self.adds_to_scores:
            dtype = dtype_of_scores(x)
            return join(mask, self.added_to(positions, global_tokens, dtype)[:, None], dtype)
        return mask

    def added_to(self, positions: Tensor, global_tokens: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Return what is added to scores of tokens at `positions` (..., T) of their texts, (..., T, T)."""
        added = self.added(positions[..., :, None], positions[..., None, :], dtype)
        return added if global_tokens is None else added.masked_fill(global_tokens[..., :, None], 0.0)

    def map_function(
        self, begins: Tensor | None, global_tokens: Tensor | None = None
    ) -> Callable[..., Tensor]:
        """Make `allows` a mask function of transformers, whose indices count the places of a row.

        `begins` are the places at which sequences begin, by row (B,) or by token (B, T); `None`: 0. By token,
        pairs of two sequences are forbidden by whoever calls this; what is asked of each place alone is then
        computed once for a row or a column of pairs. `global_tokens` (B, T) are those of the places.
        """

        def allows_places(batch_idx: Tensor, head_idx: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
            queries, keys = q_idx, kv_idx
            if begins is not None:
                queries, keys = (
                    place - (begins[batch_idx] if begins.dim() == 1 else begins[batch_idx, place])
                    for place in (q_idx, kv_idx)
                )
            allowed = self.allows(queries, keys)
            if global_tokens is None:
                return allowed
            allowed = allowed | global_tokens[batch_idx, q_idx] | global_tokens[batch_idx, kv_idx]
            return allowed & (q_idx >= kv_idx) if self.is_causal else allowed

        return allows_places


def positions_from(begins: Tensor | None, x: Tensor) -> Tensor:
    """Count the places of states (B, T, C) from where their sequences begin, (B, T)."""
    places = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
    if begins is None:
        return places
    return places - (begins[:, None] if begins.dim() == 1 else begins)


def union(some: Tensor | None, others: Tensor | None) -> Tensor | None:
    """Join two sets of tokens, of which each may be none."""
    if some is None or others is None:
        return others if some is None else some
    return some | others


class MappedPattern(AttentionPattern):
    """A pattern that is neither everything nor a window, so that kernels need a mask of its map. Abstract."""

    is_window = False
