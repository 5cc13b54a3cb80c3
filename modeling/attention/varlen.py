"""Attention over packed sequences on a GPU, by the flash kernel that comes with torch (Dao, 2024).

It reads cumulative lengths itself, in half precision, knows windows, shares keys between heads, and drops
weights. The operator is torch's own, with its gradients, but not public: so it is tried once on a machine,
and where it does not compute what the definition does, it is left alone, and the log says so.

On Hopper GPUs torch 2.11 can put FlashAttention 3 (Shah et al., 2024) in its place, from the package
`flash_attn_interface`. The operator is the same, but drops nothing, and the exchange is one of the whole
process. So it ends for good as soon as weights are to be dropped.

Shapes: N tokens of queries, M of keys, H query heads, G key-value heads, D head width.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import attention
from transformers.utils import logging

from .packing import PackedSequences

logger = logging.get_logger(__name__)

KERNEL = torch.ops.aten._flash_attention_forward
"""torch's operator."""

ENDLESS = -1
"""The window of a query on one side, if there is no limit."""

OLDEST_GPU = (8, 0)
"""Compute capability from which flash kernels run (Ampere)."""

HOPPER = (9, 0)
"""Compute capability for which FlashAttention 3 is written."""

THIRD = "FA3"
"""torch's name for it."""

WIDEST_HEAD = 256
"""Most channels of a head that flash kernels take."""

CHANNELS = 8
"""Their number is a multiple of it."""

NOISE = 0.02
"""Differences of values and gradients near 1 that bfloat16 explains."""


@torch.compiler.assume_constant_result
def has_varlen_kernel(gpu: torch.device) -> bool:
    """Return whether this torch has the kernel, and a GPU runs it and gives the definition's values."""
    exchange_kernel(False)
    return torch.cuda.get_device_capability(gpu) >= OLDEST_GPU and agrees("flash", varlen_attention, gpu)


@torch.compiler.assume_constant_result
def has_third_kernel(gpu: torch.device) -> bool:
    """Return whether FlashAttention 3 takes the kernel's place, and gives the definition's values."""
    if torch.cuda.get_device_capability(gpu) != HOPPER or find_spec("flash_attn_interface") is None:
        return False
    return exchange_kernel(True) and agrees("FlashAttention 3", varlen_attention, gpu)


_ended: list[bool] = []
"""Whether FlashAttention 3 is out of question in this process."""


def exchange_kernel(wants_third: bool) -> bool:
    """Put FlashAttention 3 in the kernel's place, or the kernel back for good; tells whether it is there."""
    name_kernel = getattr(attention, "current_flash_attention_impl", lambda: None)
    current = name_kernel()
    try:
        if wants_third and not _ended and current is None:
            attention.activate_flash_attention_impl(THIRD)
        elif not wants_third:
            _ended.append(True)
            if current == THIRD:
                attention.restore_flash_attention_impl()
        return name_kernel() == THIRD
    except (AttributeError, ImportError, RuntimeError, ValueError) as error:
        _ended.append(True)
        logger.warning(f"FlashAttention 3 is not used: {error}")
        return False


@cache
def agrees(name: str, attend: Callable[..., Tensor], gpu: torch.device) -> bool:
    """Compare a kernel with the definition, in values and gradients, once for each device."""
    try:
        with torch.enable_grad(), torch.autocast(gpu.type, enabled=False):
            difference = disagreement(attend, gpu)
    except (RuntimeError, TypeError, AttributeError) as error:
        logger.warning(f"torch's {name} kernel is not used on {gpu}: {error}")
        return False
    if not difference <= NOISE:
        logger.warning(f"torch's {name} kernel is not used on {gpu}: it differs by {difference:.2g}")
    return difference <= NOISE


def disagreement(
    attend: Callable[..., Tensor], device: torch.device, dtype: torch.dtype = torch.bfloat16
) -> float:
    """Measure the largest difference between kernel and definition, of a causal window and shared keys."""
    generator = torch.Generator().manual_seed(0)
    lengths = (5, 16, 3)
    sizes = [(sum(lengths), heads, 16) for heads in (4, 2, 2)]
    inputs = [torch.randn(size, generator=generator).to(device, dtype).requires_grad_() for size in sizes]
    bounds = torch.tensor([0, 5, 21, 24], dtype=torch.int32, device=device)
    sequences = PackedSequences(bounds, bounds, max(lengths), max(lengths))
    query, key, value = inputs
    found = attend(query, key, value, sequences, scaling=0.25, is_causal=True, sliding_window=4)
    query, key, value = (x.float() for x in inputs)
    places, numbers = torch.arange(sum(lengths), device=device), torch.arange(len(lengths), device=device)
    numbers = numbers.repeat_interleave(bounds.diff().long())
    distances = places[:, None] - places
    allowed = (distances >= 0) & (distances < 4) & (numbers[:, None] == numbers)
    scores = torch.einsum("thd,shd->hts", query, key.repeat_interleave(2, dim=1)) * 0.25
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    expected = torch.einsum("hts,shd->thd", weights, value.repeat_interleave(2, dim=1))
    sides = [(x, *torch.autograd.grad(x.sum(), inputs)) for x in (found, expected)]
    differences = [(left.float() - right.float()).abs().max() for left, right in zip(*sides, strict=True)]
    return float(torch.stack(differences).detach().max())  # no number if one is none, unlike Python's `max`


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: PackedSequences,
    *,
    scaling: float,
    is_causal: bool,
    sliding_window: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Let each query (N, H, D) attend to the keys of its own sequence, (M, G, D); returns (N, H, D).

    A window counts what is seen on one side, the query itself included.
    """
    reach = ENDLESS if sliding_window is None else sliding_window - 1
    bounds = sequences.flash_arguments
    names = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
    attended, *_ = KERNEL(
        query,
        key,
        value,
        *(bounds[name] for name in names),
        dropout,
        is_causal,
        False,
        scale=scaling,
        window_size_left=reach,
        window_size_right=0 if is_causal else reach,
    )
    return attended
