"""What a value of `attn_implementation` means: transformers' own names, and those of kernels of the Hub.

A kernel of the Hub is named by its repository, maybe with a revision and a function of it:
`kernels-community/flash-attn2@v1:flash_attn`. transformers also puts such a name in the place of
`flash_attention_2` where that is not installed. What a kernel reads follows from the kind of mask that
transformers builds for it, and is only known once it is loaded; before, its name has to do.
"""

import inspect
from functools import cache

import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, flash_attention_mask
from transformers.modeling_flash_attention_utils import lazy_import_flash_attention
from transformers.utils.generic import is_flash_attention_requested


def takes_bounds(implementation: str | None) -> bool:
    """Tell whether attention reads the bounds of packed sequences, and no mask of pairs: flash kernels do."""
    builds_mask = ALL_MASK_ATTENTION_FUNCTIONS.get(implementation)
    if builds_mask is None:
        return is_flash_attention_requested(requested_attention_implementation=implementation)
    return builds_mask is flash_attention_mask


def takes_blocks(implementation: str | None) -> bool:
    """Return whether attention reads a mask in blocks, and adds nothing to scores: flex attention does."""
    return "flex" in str(implementation)


@torch.compiler.assume_constant_result
def require_flash_options(implementation: str, dropout: float, window: int | None) -> None:
    """Raise a `ValueError` unless a flash kernel drops weights and knows windows, if they are asked for.

    FlashAttention 3 drops none. transformers leaves out silently what a kernel does not take.
    """
    for name, value, remedy in (
        ("dropout_p", dropout or None, "set attention_dropout=0"),
        ("window_size", window, "use full attention"),
    ):
        if value is not None and name not in flash_options(implementation):
            raise ValueError(
                f"attn_implementation={implementation!r} takes no {name}, which is {value} here: {remedy} or "
                "attn_implementation='sdpa'"
            )


@cache
def flash_options(implementation: str) -> tuple[str, ...]:
    """Name the arguments of the function by which a flash kernel reads bounds."""
    return tuple(inspect.signature(lazy_import_flash_attention(implementation)[0][1]).parameters)
