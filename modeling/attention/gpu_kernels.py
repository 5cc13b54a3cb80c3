"""Attention over packed sequences on a GPU: torch's flash kernel, and flex attention.

The flash kernel (Dao, 2024) reads cumulative lengths itself, in half precision, knows windows, shares keys
between heads, and drops weights. The operator is torch's own, with its gradients, but not public. Where
a machine does not run it, it is left alone, and the log says so.

Flex attention serves patterns and biases. The kernel computes the tiles of queries and keys that it is told
of, and asks a function about each pair in them (Dong et al., 2024, "Flex Attention"). Which tiles there are
is found on the device, from the bounds of the sequences: nothing is read back, all sizes are known, and no
pairs of tokens are looked at. A sequence is cut into cells as long as the pattern's blocks, whose pairs
`key_blocks` knows; a tile is computed if one of its cells sees another. Gradients are the kernel's own, also
that of a learned bias.

Shapes: N tokens of queries, M of keys, H query heads, G key-value heads, D head width, S sequences, L longest
sequence; Z cells, n tiles of a row.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from transformers.masking_utils import and_masks
from transformers.utils import logging

from ..compatibility import flash_operator, graphs_at_most, is_tracing
from .abstract_pattern import AttentionPattern, union
from .packing import PackedSequences, Tiles, longest, sequence_ids, within

logger = logging.get_logger(__name__)

ENDLESS = -1
"""The window of a query on one side, if there is no limit."""

OLDEST_GPU = (8, 0)
"""Compute capability from which flash kernels run (Ampere)."""

WIDEST_HEAD = 256
"""Most channels of a head that flash kernels take."""

LACKED_HEADS = range(193, 225)
"""Channels of heads whose gradients some GPUs have no memory for; of wider heads, those with dropout."""

LACKING_GPUS = ((8, 6), (8, 9)), ((12, 0), (12, 1))
"""Their compute capabilities, each from and up to (torch's `sdp_utils.cpp`)."""

CHANNELS = 8
"""Their number is a multiple of it."""


@torch.compiler.assume_constant_result
def has_varlen_kernel(gpu: torch.device) -> bool:
    """Return whether this torch has the kernel, and a GPU runs it."""
    if flash_operator is None:
        return False
    return torch.cuda.get_device_capability(gpu) >= OLDEST_GPU and runs("flash", varlen_attention, gpu)


@torch.compiler.assume_constant_result
def lacks_memory(gpu: torch.device) -> bool:
    """Return whether a GPU is one of those: the trial of the kernel has small heads."""
    capability = torch.cuda.get_device_capability(gpu)
    return any(first <= capability <= last for first, last in LACKING_GPUS)


@cache
def runs(name: str, attend: Callable[..., Tensor], gpu: torch.device) -> bool:
    """Return whether a device runs a kernel, forward and backward; it is asked once.

    Whoever asks first may be computing without gradients.
    """
    bounds = torch.tensor([0, 5, 21, 24], dtype=torch.int32, device=gpu)
    sequences = PackedSequences(bounds, bounds, 16, 16)
    options: Any = {"scaling": 0.25, "is_causal": True, "sliding_window": 4}
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast(gpu.type, enabled=False):
            sizes: Any = {"dtype": torch.bfloat16, "device": gpu, "requires_grad": True}
            inputs = [torch.zeros(24, heads, 16, **sizes) for heads in (4, 2, 2)]
            attend(*inputs, sequences, **options).sum().backward()
    except Exception as error:  # whatever a compiler raises
        logger.warning(f"torch's {name} kernel is not used on {gpu}: {error}")
        return False
    return True


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
    attended, *_ = flash_operator(
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


TILE = 128
"""Queries and keys of a tile: what the kernel is tuned for."""

SMALL_BLOCKS = {"BLOCK_M": 64, "BLOCK_N": 64, "FORCE_USE_FLEX_ATTENTION": True}
"""Queries and keys that the kernel holds at a time, forward. With twice as many, big bird's masks fill the
registers, and it took ten times as long as the backward pass. torch 2.9's other kernel, for few queries,
would leave some out then."""

GRAPHS = 64
"""Graphs of the kernel at most, in a process."""

SMALLEST_HEAD = 16
"""Fewest channels of a head that the kernel takes; multiples of it fill its products."""


def find_tiles(pattern: AttentionPattern, sequences: PackedSequences, num_tokens: int) -> Tiles:
    """Find the tiles of a stream (N,) that a pattern needs, and the functions of the pairs in them.

    One more sequence fills the last tile: beside a bias, the kernel's gradients of a part of one are no
    numbers (pytorch/pytorch#153799).
    """
    rest = -num_tokens % TILE
    sequences, num_tokens = with_one_more(sequences, num_tokens, rest), num_tokens + rest
    bounds = sequences.cu_seq_lens_q.long()
    ids = sequence_ids(bounds, num_tokens)  # (1, N), as all of tokens below
    begins, lengths = bounds[ids], bounds.diff()[ids]
    places = torch.arange(num_tokens, device=bounds.device) - begins
    chosen = None if sequences.global_tokens is None else sequences.global_tokens[None]
    is_global = union(chosen, pattern.own_global_tokens(places, lengths))
    length = max(sequences.max_length_q or longest(bounds), rest)
    seen = needed_tiles(pattern, bounds, ids[0], places[0], is_global, length)
    order = seen.int().argsort(dim=-1, descending=True, stable=True)
    mask = BlockMask.from_kv_blocks(
        seen.sum(-1, dtype=torch.int32)[None, None],
        order.int()[None, None],
        BLOCK_SIZE=TILE,
        mask_mod=and_masks(within(ids, ids), pattern.map_function(begins, is_global)),
        seq_lengths=(num_tokens, num_tokens),
    )
    return Tiles(mask, added_by(pattern, places[0], is_global) if pattern.adds_to_scores else None)


def with_one_more(sequences: PackedSequences, num_tokens: int, length: int) -> PackedSequences:
    """Add a sequence behind the N tokens of a stream, unless it has none; none of its tokens is global."""
    if length == 0:
        return sequences
    bounds, chosen = sequences.cu_seq_lens_q, sequences.global_tokens
    chosen = None if chosen is None else F.pad(chosen, (0, length))
    bounds = F.pad(bounds, (0, 1), value=num_tokens + length)
    return replace(sequences, cu_seq_lens_q=bounds, global_tokens=chosen)


def needed_tiles(
    pattern: AttentionPattern,
    bounds: Tensor,
    ids: Tensor,
    places: Tensor,
    is_global: Tensor | None,
    length: int,
) -> Tensor:
    """Return which tiles have a pair that may attend, (n, n), and maybe some that have none.

    Args:
        pattern: Pattern of the layer.
        bounds: Cumulative lengths (S+1,).
        ids: The sequence of each token, (N,).
        places: Where it stands in there, (N,).
        is_global: (1, N), true at tokens that are global.
        length: L.
    """
    size, num_sequences = pattern.block_size or TILE, len(bounds) - 1
    cells = F.pad((-(-bounds.diff() // size)).cumsum(0), (1, 0))  # (S+1,)
    numbers = torch.arange(len(ids) // size + num_sequences, device=bounds.device)  # at least as many, (Z,)
    owners = torch.searchsorted(cells[1:].contiguous(), numbers, right=True).clamp(max=num_sequences - 1)
    blocks = seen_blocks(pattern, -(-length // size), bounds.device)
    cell_places = (numbers - cells[owners]).clamp(max=len(blocks) - 1)
    seen = blocks[cell_places[:, None], cell_places]
    cell_of_token = cells[ids] + places // size
    if is_global is not None:
        counts = torch.zeros_like(numbers).index_add_(0, cell_of_token, is_global[0].long())
        seen = pattern.widen(seen, cell_places, counts > 0)
    seen = seen & (owners[:, None] == owners)
    sums = F.pad(seen.cumsum(0, dtype=torch.int32).cumsum(1, dtype=torch.int32), (1, 0, 1, 0))
    first = torch.arange(0, len(ids), TILE, device=bounds.device)
    begin, end = cell_of_token[first], cell_of_token[(first + TILE - 1).clamp(max=len(ids) - 1)] + 1
    rows = sums[end] - sums[begin]
    found = rows[:, end] > rows[:, begin]
    return found.tril() if pattern.is_causal else found  # a cell may lie in two tiles


@lru_cache(maxsize=64)
def seen_blocks(pattern: AttentionPattern, num_blocks: int, device: torch.device) -> Tensor:
    """Return which blocks of a text see which, (blocks, blocks), as far as the pattern says it."""
    if pattern.block_size is None:
        seen = torch.ones(num_blocks, num_blocks, dtype=torch.bool)
        return (seen.tril() if pattern.is_causal else seen).to(device)
    seen = torch.zeros(num_blocks, num_blocks, dtype=torch.bool)
    for row, keys in zip(seen, pattern.key_blocks(num_blocks), strict=True):
        row[keys] = True
    return seen.to(device)


def added_by(
    pattern: AttentionPattern, places: Tensor, is_global: Tensor | None
) -> Callable[[Tensor, Tensor, torch.dtype], Tensor]:
    """Return what a pattern adds to scores, by a function of the numbers of two tokens and of a type."""

    def added(query: Tensor, key: Tensor, dtype: torch.dtype) -> Tensor:
        found = pattern.added(places[query], places[key], dtype)
        return found if is_global is None else torch.where(is_global[0, query], 0.0, found)

    return added


def tiled_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: PackedSequences,
    *,
    scaling: float,
    packed_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend by tiles: (1, H, N, D) to (1, N, H, D); `packed_bias` (H, 2L-1) is that of distances."""
    assert sequences.tiles is not None
    mask, added = sequences.tiles

    def adjust(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        if packed_bias is not None:
            reach = packed_bias.shape[1] // 2  # other sequences, which are masked, may be farther
            score = score + packed_bias[head, (key - query + reach).clamp(0, 2 * reach)]
        return score if added is None else score + added(query, key, score.dtype)

    is_plain = packed_bias is None and added is None
    compute = flex_attention if is_tracing() or query.is_cpu else compiled_attention
    options: Any = {} if query.is_cpu else {"kernel_options": SMALL_BLOCKS}
    num_tokens = query.shape[2]
    if rest := mask.seq_lengths[0] - num_tokens:
        query, key, value = (F.pad(x, (0, 0, 0, rest)) for x in (query, key, value))
    attended: Any = compute(
        query, key, value, None if is_plain else adjust, mask, scale=scaling, enable_gqa=True, **options
    )
    return attended.transpose(1, 2)[:, :num_tokens], None


def compiled_attention(*arguments: Any, **options: Any) -> Any:
    """Compute outside of graphs by a compiled kernel: as it is written, flex attention computes all pairs.

    Sizes are general from the second one on; patterns, with and without gradients, have graphs of their own.
    """
    with graphs_at_most(GRAPHS):
        return compiled_kernel()(*arguments, **options)


@cache
def compiled_kernel() -> Callable[..., Any]:
    return torch.compile(flex_attention, fullgraph=True)


@torch.compiler.assume_constant_result
def has_flex_kernel(gpu: torch.device) -> bool:
    """Return whether this machine compiles the kernel, and runs it."""
    return runs("flex", near_by_tiles, gpu)


def near_by_tiles(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: PackedSequences,
    *,
    scaling: float,
    is_causal: bool,
    sliding_window: int,
) -> Tensor:
    """Do by tiles what `varlen_attention` does with a window in one direction, to try the kernel."""
    assert is_causal
    ids = sequence_ids(sequences.cu_seq_lens_q, len(query))

    def near(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (query - key < sliding_window)

    sizes = None, None, len(query), len(query)
    mask = create_block_mask(and_masks(within(ids, ids), near), *sizes, device=query.device)
    sequences = replace(sequences, tiles=Tiles(mask, None))
    query, key, value = (x.transpose(0, 1)[None] for x in (query, key, value))
    return tiled_attention(nn.Identity(), query, key, value, sequences, scaling=scaling)[0][0]
