"""Attention over packed sequences on a GPU, by the flash kernel that comes with torch (Dao, 2024).

It reads cumulative lengths itself, in half precision, and drops nothing; torch has it since 2.10, with all
that is needed here a little later.

Shapes: N tokens of queries, M of keys, H query heads, G key-value heads, D head width.
"""

import importlib.util
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .packing import PackedSequences

ENDLESS = -1
"""The window of a query on one side, if there is no limit."""

OLDEST_GPU = (8, 0)
"""Compute capability from which flash kernels run (Ampere)."""

WIDEST_HEAD = 256
"""Most channels of a head that flash kernels take."""


def find_kernel() -> Callable[..., Any] | None:
    """Give torch's kernel, or `None` if this torch has none, or one that lacks what is needed here."""
    if importlib.util.find_spec("torch.nn.attention.varlen") is None:
        return None
    from torch.nn.attention.varlen import varlen_attn

    needed = {"scale", "window_size", "enable_gqa"}
    return varlen_attn if needed <= inspect.signature(varlen_attn).parameters.keys() else None


KERNEL = find_kernel()


def has_varlen_kernel(gpu: torch.device) -> bool:
    """Tell whether this torch has the kernel, and a GPU runs it."""
    return KERNEL is not None and torch.cuda.get_device_capability(gpu) >= OLDEST_GPU


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: PackedSequences,
    *,
    scaling: float,
    is_causal: bool,
    sliding_window: int | None = None,
) -> Tensor:
    """Let each query (N, H, D) attend to the keys of its own sequence, (M, G, D); returns (N, H, D).

    A window counts what is seen on one side, the query itself included.
    """
    assert KERNEL is not None
    bounds = sequences.flash_arguments
    reach = ENDLESS if sliding_window is None else sliding_window - 1
    return KERNEL(
        query,
        key,
        value,
        bounds["cu_seq_lens_q"],
        bounds["cu_seq_lens_k"],
        bounds["max_length_q"],
        bounds["max_length_k"],
        scale=scaling,
        window_size=(reach, 0 if is_causal else reach),
        enable_gqa=query.shape[1] != key.shape[1],
    )
