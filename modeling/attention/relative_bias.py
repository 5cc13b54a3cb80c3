"""Relative positions as a bias: the distance between a query and a key adds to their score.

In T5 every head learns a number for each bucket of distances, and all layers of a stack share them (Raffel et
al., 2020, section 2.1). Short distances have buckets of their own, longer ones share wider and wider buckets.
Biases without parameters follow from the distance alone.

Distances are counted in indices of keys, as in T5: pads before or behind a sequence change none of them, a
cache only has to know how many of its slots are filled, and position ids play no part.

Attention with linear biases: the farther a key is from its query, the lower their score.

Each head has a slope of its own, and a pair at distance d has -slope * d added to its score (Press, Smith and
Lewis, 2022, section 3: ALiBi). Nothing is learned, so a distance that no training text had is no special
case. The paper defines the bias for decoders. Encoders have the symmetric form, -slope * |i - j|, of which a
decoder sees one side: the bias is the same in both directions. An encoder knows therefore how far away a
token is, but not on which side: a text read backwards has the same states.

Shapes: B batch, T queries, S keys, H query heads, C model width.
"""

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache

from ..compatibility import is_tracing
from .packing import Mask, Masks, PackedSequences, longest, rounded_length


class NoBias(nn.Module):
    """Scores of queries and keys alone, for a `TercetConfig`; also the form of what follows."""

    is_directed: ClassVar[bool] = False
    """Whether a bias of one direction, causal or not, is of no use in the other."""

    def __init__(self, config: PreTrainedConfig, *, is_causal: bool):
        super().__init__()

    def forward(self, masks: Masks, x: Tensor, cache: Cache | None, is_causal: bool | None = None) -> Masks:
        """Return what attention over states `x` (B, T, C), and over what is cached, adds to its scores.

        `is_causal` replaces the stack's own direction.
        """
        return masks

    def of_packed(self, masks: Masks, device: torch.device) -> Tensor | None:
        """Return what is added to the scores of packed sequences, if something is and they are packed.

        It is that of the longest one, (1, H, T, T), of which others take a part; kernels of tiles get it by
        distance, (H, 2T - 1).
        """
        return None

    def require_direction(self, is_causal: bool | None) -> None:
        """Raise a `ValueError` if the bias does not serve a direction; `None` is its own."""


class DistanceBias(NoBias):
    """A number for each head and distance. Abstract."""

    def __init__(self, config: PreTrainedConfig, *, is_causal: bool):
        super().__init__(config, is_causal=is_causal)
        self.is_causal = is_causal
        self.layer_types = config.types_of_layers

    def require_direction(self, is_causal: bool | None) -> None:
        if self.is_directed and is_causal not in (None, self.is_causal):
            raise ValueError(
                f"is_causal={is_causal}, but a bias of relative positions is learned for is_causal="
                f"{self.is_causal}: choose position_embedding_type='rotary', 'alibi' or 'learned'"
            )

    def forward(self, masks: Masks, x: Tensor, cache: Cache | None, is_causal: bool | None = None) -> Masks:
        if isinstance(next(iter(masks.values())), PackedSequences):
            return masks
        is_causal = self.is_causal if is_causal is None else is_causal
        return {
            layer_type: self.biased(mask, x, cache, self.layer_types.index(layer_type), is_causal)
            for layer_type, mask in masks.items()
        }

    def of_packed(self, masks: Masks, device: torch.device) -> Tensor | None:
        sequences = next(iter(masks.values()))  # the same for all types of layers, but for their tiles
        if not isinstance(sequences, PackedSequences):
            return None
        length = sequences.max_length_q or longest(sequences.cu_seq_lens_q)
        if sequences.tiles is not None:
            return self.of_distances(torch.arange(1 - length, length, device=device)).contiguous()
        length = rounded_length(length)  # as groups are
        return self.bias(device, length, length)

    def biased(self, mask: Mask, x: Tensor, cache: Cache | None, layer_idx: int, is_causal: bool) -> Tensor:
        """Join the bias with the mask of a layer, whose cache may have dropped what lies far back."""
        num_queries, num_keys, past_length = x.shape[1], x.shape[1], 0
        if cache is not None:
            num_keys, first_position = cache.get_mask_sizes(num_queries, layer_idx)
            past_length = cache.get_seq_length(layer_idx) - first_position
        if mask is None and is_causal:
            mask = keys_so_far(x.device, num_queries, num_keys, past_length)
        assert mask is None or isinstance(mask, Tensor)
        return join(mask, self.bias(x.device, num_queries, num_keys, past_length), dtype_of_scores(x))

    def bias(
        self, device: torch.device, num_queries: int, num_keys: int, past_length: int | Tensor = 0
    ) -> Tensor:
        """Return what is added for queries behind the first `past_length` keys: (1, H, T, S).

        Each query's row is the next one's, shifted by one, so that there are T + S - 1 distances in all.
        """
        last_position = past_length + num_queries - 1
        distances = torch.arange(num_queries + num_keys - 1, device=device) - last_position
        return windows(self.of_distances(distances), num_keys).flip(-2)[None]

    @abstractmethod
    def of_distances(self, distances: Tensor) -> Tensor:
        """Return what is added at distances (n,) from query to key, below 0 for an earlier key: (H, n)."""


class RelativeBias(DistanceBias):
    """A number for each head and bucket; in an encoder, later keys have other buckets than earlier ones."""

    is_directed = True

    def __init__(self, config: PreTrainedConfig, *, is_causal: bool):
        super().__init__(config, is_causal=is_causal)
        self.table = nn.Embedding(config.relative_attention_num_buckets, config.num_attention_heads)
        self.max_distance = config.relative_attention_max_distance

    def of_distances(self, distances: Tensor) -> Tensor:
        return self.table(self.buckets(distances)).T

    def buckets(self, distances: Tensor) -> Tensor:
        """Number the bucket of each distance from a query to a key, below 0 for an earlier key.

        Half of a direction's buckets hold a single distance each. The others divide those up to
        `max_distance` evenly on a logarithmic scale, and the last one holds all longer ones, too.
        """
        num_buckets = self.table.num_embeddings
        if self.is_causal:
            first, steps = 0, (-distances).clamp(min=0)
        else:
            num_buckets //= 2
            first, steps = num_buckets * (distances > 0), distances.abs()
        num_exact = num_buckets // 2
        # In float32 and in the order of T5's code: rounding decides in which bucket an edge falls.
        share = torch.log(steps.clamp(min=1).float() / num_exact) / math.log(self.max_distance / num_exact)
        wide = num_exact + (share * (num_buckets - num_exact)).long()
        return first + torch.where(steps < num_exact, steps, wide.clamp(max=num_buckets - 1))


def windows(x: Tensor, size: int) -> Tensor:
    """Every run of `size` neighbours in the last dimension: (..., N) -> (..., N - size + 1, size).

    A graph looks them up, since it has to serve sequences of any length, and `unfold` would fix it.
    """
    if not is_tracing():
        return x.unfold(-1, size, 1)
    starts = torch.arange(x.shape[-1] - size + 1, device=x.device)
    return x[..., starts[:, None] + torch.arange(size, device=x.device)]


def keys_so_far(device: torch.device, num_queries: int, num_keys: int, past_length: int | Tensor) -> Tensor:
    """Allow each query the keys up to its own position, (T, S); kernels do so themselves if not biased."""
    positions = torch.arange(num_queries, device=device) + past_length
    return torch.arange(num_keys, device=device) <= positions[:, None]


def join(mask: Tensor | None, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """Add a bias where a mask, boolean or additive, allows a pair; elsewhere stands the lowest number."""
    lowest = torch.finfo(dtype).min
    if mask is None:
        return bias.to(dtype)
    if mask.dtype == torch.bool:
        return bias.to(dtype).where(mask, lowest)
    return (bias + mask).clamp(min=lowest).to(dtype)


def dtype_of_scores(x: Tensor) -> torch.dtype:
    """Return in which type the projections of states `x` will be multiplied."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


class LinearBias(DistanceBias):
    """Minus a slope for each head, times the distance. It has no parameters.

    transformers' BLOOM adds a constant for each query, which softmax ignores.
    """

    def __init__(self, config: PreTrainedConfig, *, is_causal: bool):
        super().__init__(config, is_causal=is_causal)
        self.num_heads = config.num_attention_heads

    def of_distances(self, distances: Tensor) -> Tensor:
        return -slopes(self.num_heads, distances.device)[:, None] * distances.abs()


def slopes(num_heads: int, device: torch.device) -> Tensor:
    """Return the slope of each head, (H,), in float32.

    Of n heads, n a power of 2, they are 2^(-8 k / n) for k = 1, 2, ..., n. Other numbers of heads follow the
    authors' code: first the slopes of the next lower power of 2, then every second one, from the first on, of
    twice that power.

    Example:
        >>> slopes(4, torch.device("cpu")).tolist()
        [0.25, 0.0625, 0.015625, 0.00390625]
        >>> slopes(6, torch.device("cpu"))[4:].tolist()
        [0.5, 0.125]
    """
    power = 1 << (num_heads.bit_length() - 1)
    own = torch.arange(1, power + 1, device=device)
    between = torch.arange(num_heads - power, device=device) + 0.5
    return torch.exp2(-8 / power * torch.cat((own, between)))
