"""What every attention pattern has: a predicate of positions, which defines it, and a mask for kernels.

Shapes: B batch, T queries, S keys, C model width.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache
from transformers.masking_utils import and_masks, create_bidirectional_mask, create_causal_mask

from .packing import first_tokens, within
from .tracing import is_tracing


class AttentionPattern(ABC):
    """Which keys of its own sequence a query may attend to. Abstract.

    Args:
        config: A `TercetConfig`.
        is_causal: Whether keys behind the query are forbidden, as in a decoder.
    """

    is_local: ClassVar[bool] = False
    """Whether keys are near their query, for which rotary positions may have a base of their own."""
    window: int | None = None
    """What kernels are told that know windows: the keys on one side, the query included; `None`: no limit."""
    is_window: ClassVar[bool] = True
    """Whether direction and `window` say everything. Kernels that take no masks serve such patterns only."""
    block_size: int | None = None
    """Tokens of the blocks by which kernels may compute a sparse pattern; `None`: it has none."""
    fields: ClassVar[tuple[str, ...]] = ()
    """The fields of a configuration that the pattern reads, and that change nothing without it."""

    def __init__(self, config: PreTrainedConfig, *, is_causal: bool):
        self.config = config
        self.is_causal = is_causal

    def __eq__(self, other: object) -> bool:
        """Compare by what the pattern allows."""
        return isinstance(other, AttentionPattern) and self.identity == other.identity

    def __hash__(self) -> int:
        """Agree with equality."""
        return hash(self.identity)

    @property
    def identity(self) -> tuple[object, ...]:
        """All that the pattern's map depends on."""
        return (type(self), self.is_causal, *(getattr(self.config, name) for name in self.fields))

    def toward(self, is_causal: bool | None) -> "AttentionPattern":
        """Give the same pattern causal or bidirectional; `None` keeps its own direction."""
        if is_causal is None or is_causal == self.is_causal:
            return self
        return type(self)(self.config, is_causal=is_causal)

    @classmethod
    @abstractmethod
    def require(cls, config: PreTrainedConfig, layer_types: str) -> None:
        """Raise a `ValueError` unless the fields suit the pattern; `layer_types` names that of the types."""

    @abstractmethod
    def allows(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Tell which pairs may attend, by their positions in a sequence, which broadcast. The definition."""

    @abstractmethod
    def is_full(self, length: int) -> bool:
        """Tell whether a sequence of a length has no pairs to forbid, but for those that `is_causal` does."""

    def key_blocks(self, num_blocks: int) -> list[list[int]]:
        """List the blocks of keys that each block of queries sees, if there is a `block_size`.

        All pairs that `allows` does lie within them.
        """
        raise NotImplementedError(f"{type(self).__name__} has no blocks")

    @abstractmethod
    def build_mask(
        self,
        config: PreTrainedConfig,
        x: Tensor,
        attention_mask: Tensor | None,
        past_key_values: Cache | None,
        sequence_ids: Tensor | None,
    ) -> Tensor | BlockMask | None:
        """Build the mask of a padded batch, in the form that the kernel of `config` takes.

        Args:
            config: Whose `attn_implementation` tells the form.
            x: States of the queries (B, T, C).
            attention_mask: (B, S), 0 at pads.
            past_key_values: The cache before the queries.
            sequence_ids: (B, T), which number the sequences of a row that are kept apart; `None`: one a row.
        """


class MappedPattern(AttentionPattern):
    """A pattern that is neither everything nor a window, so that kernels need a mask of its map. Abstract."""

    is_window = False

    def build_mask(
        self,
        config: PreTrainedConfig,
        x: Tensor,
        attention_mask: Tensor | None,
        past_key_values: Cache | None,
        sequence_ids: Tensor | None,
    ) -> Tensor | BlockMask | None:
        """Forbid pads, other sequences, and what the map does; short sequences are full attention's."""
        create: Callable[..., Any] = create_causal_mask if self.is_causal else create_bidirectional_mask
        length = x.shape[1] if attention_mask is None else max(x.shape[1], attention_mask.shape[-1])
        functions = [] if sequence_ids is None else [within(sequence_ids, sequence_ids)]
        if past_key_values is not None or is_tracing() or not self.is_full(length):
            functions.append(self.map_function(first_tokens(attention_mask, sequence_ids)))
        and_mask_function = and_masks(*functions) if functions else None
        return create(
            config, x, attention_mask, past_key_values=past_key_values, and_mask_function=and_mask_function
        )

    def map_function(self, begins: Tensor | None) -> Callable[..., Tensor]:
        """Make `allows` a mask function of transformers, whose indices count the places of a row.

        `begins` are the places at which sequences begin, by row (B,) or by token (B, T); `None`: 0.
        """

        def allows_places(batch_idx: Tensor, head_idx: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
            if begins is None:
                return self.allows(q_idx, kv_idx)
            begin = begins[batch_idx] if begins.dim() == 1 else begins[batch_idx, q_idx]
            return self.allows(q_idx - begin, kv_idx - begin)

        return allows_places
