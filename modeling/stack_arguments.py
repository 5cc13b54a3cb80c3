"""What the models are called with: the checks of arguments that they share, and what is meant for kernels."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.utils import logging

from .attention.implementations import takes_bounds
from .attention.packing import is_padding_mask
from .tracing import is_tracing

logger = logging.get_logger(__name__)


def require_tokens(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
    """Return whichever of the two is given.

    Raises:
        ValueError: If both are, or none is, or there is no token in them.
    """
    tokens = input_ids if inputs_embeds is None else inputs_embeds
    if tokens is None or (input_ids is not None and inputs_embeds is not None):
        raise ValueError("give either input_ids or inputs_embeds: exactly one of them")
    if not is_tracing() and tokens.numel() == 0:
        raise ValueError(
            f"the input has the size {(*tokens.shape,)}: give one row or more, of one token or more"
        )
    return tokens


class StackCall(NamedTuple):
    """What a call of a stack records and caches, on which it depends whether rows can be packed.

    Args:
        output_attentions: Attentions are recorded, by the definition, which knows masks only.
        can_unpad: Whether pads may be removed: no states between layers are returned, nothing is cached yet.
            They are in training without a cache, and from long texts of sparse patterns.
        past_length: Tokens already in the cache; `None` without a cache.
        use_cache: A cache is to be returned.
    """

    output_attentions: bool
    can_unpad: bool
    past_length: int | Tensor | None = None
    use_cache: bool = False

    @property
    def has_cache(self) -> bool:
        """Whether keys are cached, now or before."""
        return self.use_cache or self.past_length is not None

    @property
    def may_hold_sequences(self) -> bool:
        """Whether positions that restart begin a sequence: behind a cache they go on, also in its graph."""
        return self.past_length is None and not (self.use_cache and is_tracing())

    def num_keys(self, num_tokens: int) -> int | None:
        """Count the keys of so many tokens; `None` if a graph does not know the length of the cache."""
        return None if isinstance(self.past_length, Tensor) else num_tokens + (self.past_length or 0)


def separate_by_mask(implementation: str | None) -> None:
    """Warn once that packed sequences take the slow path; in a compiled graph there is no other.

    Raises:
        ValueError: If attention takes no mask, so that they would attend to each other.
    """
    if takes_bounds(implementation) or implementation not in ALL_MASK_ATTENTION_FUNCTIONS:
        raise ValueError(
            f"attn_implementation='{implementation}' takes no mask, which packed sequences of several rows, "
            "or in a compiled graph, need: give one row, or choose attn_implementation='sdpa' or 'eager'"
        )
    if not is_tracing():
        logger.warning_once(
            "packed sequences are separated by a block-diagonal mask, whose cost is quadratic in the number "
            "of tokens: fast kernels take one packed row, need attention 'sdpa', 'eager' or a flash kernel, "
            "and record no attentions"
        )


def require_source(source: Tensor | None, reads_source: bool) -> None:
    """Raise a `ValueError` unless a stack that reads an encoder has its states, and no other stack any."""
    if source is None and reads_source:
        raise ValueError(
            "encoder_hidden_states are missing, which this decoder reads: give them, or call the whole model"
        )
    if source is not None and not reads_source:
        raise ValueError(
            "encoder_hidden_states are given to a stack without cross-attention, which would not read them: "
            "leave them out, or build a sequence-to-sequence model"
        )


def refuse_output_positions(arguments: dict[str, Any], reader: str) -> None:
    """Raise a `ValueError` if `output_positions` are given to a model that needs all states."""
    if arguments.get("output_positions") is not None:
        raise ValueError(
            f"output_positions are given to {reader}, which needs all hidden states: leave them out, or "
            f"call the encoder or the decoder alone"
        )


def require_global_tokens(
    global_attention_mask: Tensor | None, size: torch.Size, attention_mask: object, implementation: str | None
) -> Tensor | None:
    """Tell which tokens of a batch of `size` (B, T) are chosen to be global, (B, T); `None`: none are chosen.

    Raises:
        ValueError: If a choice is no tensor, has another size, or lies outside the text, or the mask or the
            kernel cannot take it up.
    """
    if global_attention_mask is None:
        return None
    if not isinstance(global_attention_mask, Tensor):
        raise ValueError(
            f"global_attention_mask is a {type(global_attention_mask).__name__}, but has to be a tensor of "
            f"size {(*size,)}: pass torch.tensor(...), 1 where a token is global"
        )
    if global_attention_mask.shape != size:
        raise ValueError(
            f"global_attention_mask has the size {(*global_attention_mask.shape,)}, but there are tokens of "
            f"size {(*size,)}: give each token a number, 1 where it is global"
        )
    is_global = global_attention_mask != 0
    if takes_bounds(implementation):
        raise ValueError(
            f"attn_implementation='{implementation}' takes no mask, as global_attention_mask needs one: "
            "choose attn_implementation='sdpa' or 'eager'"
        )
    if attention_mask is not None and not is_padding_mask(attention_mask):
        raise ValueError(
            "global_attention_mask is given with an attention_mask of pairs, which is used as it is: allow "
            "the pairs of global tokens there, or give an attention_mask of tokens, (B, T)"
        )
    if is_padding_mask(attention_mask) and not is_tracing():
        outside = (is_global & (attention_mask == 0)).nonzero().tolist()
        if outside:
            raise ValueError(
                f"global_attention_mask marks position {outside[0][1]} of row {outside[0][0]}, which is a "
                "pad: mark tokens of the text alone"
            )
    return is_global


def refuse_global_tokens(arguments: dict[str, Any], reader: str) -> None:
    """Raise a `ValueError` if `global_attention_mask` is given to a decoder, whatever its direction."""
    if arguments.get("global_attention_mask") is not None:
        raise ValueError(
            f"global_attention_mask is given to {reader}, but encoders alone take one: leave it out, and set "
            "attention_global_tokens for the first tokens of big bird layers"
        )


def kernel_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Keep what is meant for the attention kernel: the model itself has taken up layout and recording."""
    taken = {
        "cu_seq_lens_q",
        "cu_seq_lens_k",
        "max_length_q",
        "max_length_k",
        "global_attention_mask",
        "output_hidden_states",
        "use_cache",
    }
    return {name: value for name, value in arguments.items() if name not in taken}
