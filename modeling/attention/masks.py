"""How the attention mask that a caller gives is read: one reading for all members and kernels.

form      sizes                                     a number means
tokens    (B, S), of any type                       0 a pad, any other a token
pairs     (B, T, S), or (B, H, T, S), of which      0 that a query may not attend to a key, any other
          all but S may be 1; boolean or integer    that it may
addends   the same, floating                        is added to the score: 0, or a very negative number
blocks    a `BlockMask`                             flex attention's own form
by type   a dictionary of pairs, addends or         the same, for the layers of that type
          blocks, one for each type of layer

Floating pairs of which each is 0 or 1, and one is 1, are read as integers: nobody adds 1 to scores. A mask of
pairs says everything: neither the causal order nor windows nor pads are added to it, and positions are
counted from the first column.

Sizes and types are checked before anything is computed, and no device is waited for.

Shapes: B batch, T queries, S keys, those of a cache included, H query heads.
"""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache

from ..compatibility import is_tracing
from ..configuration_tercet import takes_blocks, takes_bounds
from .dot_product import additive
from .packing import Mask, Masks, is_padding_mask, of_target
from .relative_bias import dtype_of_scores

DROPPED = -1000.0
"""From here on down, a number in a mask of tokens can only have been meant to be added to scores."""


def require_mask(
    mask: object,
    size: tuple[int, ...],
    num_keys: int | None,
    num_heads: int | None,
    name: str = "attention_mask",
) -> None:
    """Raise a `ValueError` unless a mask has a form that is read, and the sizes of what it is for.

    Args:
        mask: As the caller gives it.
        size: (B, T) of the queries.
        num_keys: S; `None`: unknown, and at least T.
        num_heads: H; `None`: the model has no attention, and reads masks of tokens alone.
        name: What the caller calls the mask.
    """
    num_rows, num_queries = size
    has_attention = num_heads is not None
    if isinstance(mask, dict) and has_attention:
        for kind, each in mask.items():
            if not is_padding_mask(each):  # which is what transformers makes for a flash kernel
                require_mask(each, size, None, num_heads, f"{name}[{kind!r}]")
        return
    if mask is None or is_tracing() or (isinstance(mask, BlockMask) and has_attention):
        return
    keys = f"at least {num_queries}" if num_keys is None else num_keys
    forms = f"({num_rows}, {keys}), one number for each token, 0 at pads"
    leading = {2: ({num_rows},)}
    if has_attention:
        forms += f"; or ({num_rows}, {num_heads} or 1, {num_queries}, {keys}), true where a query may attend"
        rows, heads, queries = ({1, size} for size in (num_rows, num_heads, num_queries))
        leading |= {3: (rows, queries), 4: (rows, heads, queries)}
    if not isinstance(mask, Tensor):
        raise ValueError(f"{name} is a {type(mask).__name__}: give a tensor of size {forms}")
    fits = mask.dim() in leading and all(
        given in possible for given, possible in zip(mask.shape, leading[mask.dim()], strict=False)
    )
    if not fits or (mask.shape[-1] < num_queries if num_keys is None else mask.shape[-1] != num_keys):
        raise ValueError(f"{name} has the size {(*mask.shape,)}: give {forms}")
    if mask.dim() == 2 and mask.is_floating_point() and mask.is_cpu and bool((mask <= DROPPED).any()):
        raise ValueError(
            f"{name} holds {mask.min().item()} and has the size {(*mask.shape,)}, in which 0 marks a pad: "
            f"give 1 at tokens and 0 at pads, or what is added to scores as {name}[:, None, None]"
        )


def refuse_mask_of_packed(mask: object) -> None:
    """Raise a `ValueError` if a mask is given beside the bounds of packed sequences, which say it all."""
    if mask is None or (is_padding_mask(mask) and (not mask.is_cpu or is_tracing() or bool(mask.all()))):
        return
    raise ValueError(
        "attention_mask is given beside cumulative lengths of packed sequences, which say which tokens "
        "attend to each other: leave one of them out"
    )


def kernel_masks(given: Mask | Masks, config: PreTrainedConfig, x: Tensor, cache: Cache | None) -> Masks:
    """Return the mask for each type of layer of a model in the form that its kernel takes.

    Args:
        given: A mask of pairs in any form, or one for each type of layer.
        config: Whose `attn_implementation` names the kernel.
        x: States of the queries (B, T, C).
        cache: The cache before them, of which sliding layers may have dropped the first tokens.
    """
    types = config.types_of_layers
    if isinstance(given, dict):
        by_type = given
    else:
        by_type = {kind: of_cache(given, x.shape[1], cache, types.index(kind)) for kind in types}
    if missing := [kind for kind in types if kind not in by_type]:
        raise ValueError(
            f"attention_mask has masks for layers of the types {', '.join(map(repr, by_type))}, but the "
            f"model has some of type {missing[0]!r}: give each type a mask, or None"
        )
    implementation = str(config._attn_implementation)
    return {kind: kernel_mask(by_type[kind], implementation, x) for kind in dict.fromkeys(types)}


def of_cache(mask: Mask, num_queries: int, cache: Cache | None, layer_idx: int) -> Mask:
    """Return the part of a mask of pairs that is of the keys in a cache: a sliding layer's has not all."""
    cache = of_target(cache)
    if cache is None or not isinstance(mask, Tensor) or is_tracing():
        return mask
    num_keys, first = cache.get_mask_sizes(num_queries, layer_idx)
    if mask.shape[-1] == num_keys:
        return mask
    if mask.shape[-1] < first + num_keys:
        raise ValueError(
            f"attention_mask has the size {(*mask.shape,)}, but the cache keeps {num_keys} keys from "
            f"position {first} on: give each a number, or give a mask of tokens, (B, S)"
        )
    return mask[..., first : first + num_keys]


def kernel_mask(mask: Mask, implementation: str, x: Tensor) -> Mask:
    """Convert a mask of pairs to what a kernel takes for queries `x` (B, T, C): see `kernel_masks`."""
    if isinstance(mask, BlockMask) and not takes_blocks(implementation):
        raise ValueError(
            f"attention_mask is a BlockMask, which attn_implementation='{implementation}' does not take: "
            "give a tensor, or choose attn_implementation='flex_attention'"
        )
    if not isinstance(mask, Tensor) or (is_padding_mask(mask) and takes_bounds(implementation)):
        return mask
    if takes_bounds(implementation):
        raise ValueError(
            f"attention_mask has the size {(*mask.shape,)}, but attn_implementation='{implementation}' takes "
            "no mask of pairs: give one of tokens, (B, T), or choose attn_implementation='sdpa' or 'eager'"
        )
    mask = pairs_of(mask).to(x.device)
    if not mask.is_floating_point() and implementation != "eager" and not takes_blocks(implementation):
        return mask != 0
    mask = addends_of(mask, dtype_of_scores(x))
    if not takes_blocks(implementation):
        return mask
    if mask.shape[1] > 1:
        raise ValueError(
            f"attention_mask has the size {(*mask.shape,)}, but attn_implementation='{implementation}' takes "
            "one mask for all heads: choose attn_implementation='sdpa' or 'eager'"
        )
    return mask.expand(x.shape[0], 1, x.shape[1], -1)


def addends_of(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what a mask of pairs adds to scores, of a type: 0, or the lowest number where it forbids."""
    like = torch.empty((), dtype=dtype, device=mask.device)
    if not mask.is_floating_point():
        added = additive(mask != 0, False, mask.shape[-1], like=like)
        assert added is not None
        return added
    lowest = torch.finfo(dtype).min
    are_numbers = ((mask == 0) | (mask == 1)).all() & (mask != 0).any()
    added = like.new_zeros(()).where(mask == 1, lowest).where(are_numbers, mask.to(dtype))
    return added.clamp(min=lowest)


def tokens_of(mask: Tensor | None, num_rows: int) -> Tensor | None:
    """Make a mask of a source's tokens (B, S) of one of their pairs: one that none attends to is a pad.

    A decoder that reads the source of B rows reads these.
    """
    if mask is None or is_padding_mask(mask):
        return mask
    mask = pairs_of(mask)
    is_read = mask != 0 if not mask.is_floating_point() else addends_of(mask, torch.float32).exp() > 0
    return is_read.any(2).any(1).expand(num_rows, -1)


def pairs_of(mask: Tensor) -> Tensor:
    """Share pairs among all heads, if a mask tells no heads apart: (B, T, S) -> (B, 1, T, S)."""
    return mask[:, None] if mask.dim() == 3 else mask
