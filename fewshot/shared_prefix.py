"""Attention of many rows to one cached beginning, which is neither copied nor repeated for them.

The keys of the beginning are the same for all rows, so that the queries of all make one product with them,
and a second one with those of their own row (Juravsky et al., 2024, Hydragen, section 3; there the softmaxes
of both are joined by their sums, here one goes over all scores).

Shapes: B rows, T positions of a row, P cached positions, H query heads, G key-value heads, D head width.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

MOST_SCORES = {"cpu": 2**20}
"""Scores that are held at once, at most, by the type of the device: as many as a processor's cache holds."""

MOST_SCORES_ELSEWHERE = 2**26


class SharedPrefix:
    """A kernel of attention, for models of ours: every row reads what is cached of one text, and itself.

    Args:
        cache: Keys and values of the beginning, of a single row.
    """

    def __init__(self, cache: Cache):
        self.layers: list[Any] = list(cache.layers)

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor,
        *,
        scaling: float,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """Let `query` (B, H, T, D) read the beginning, and of `key` and `value` (B, G, T, D) what it may.

        `attention_mask` (B, 1, T, T) is added to the scores of a row. Returns what was read, (B, T, H, D).
        """
        layer = self.layers[int(module.layer_idx)]  # pyright: ignore[reportArgumentType]
        groups = query.shape[1] // key.shape[1]
        query, key, value = (heads_first(x) for x in (query * scaling, key, value))
        # (H, P, D) of the beginning, and (H, B, T, D) of the rows themselves
        keys, values = (x[0].repeat_interleave(groups, dim=0) for x in (layer.keys, layer.values))
        own = [x.repeat_interleave(groups, dim=0) for x in (key, value)]
        rows = rows_at_once(query, keys.shape[1])
        parts = zip(*(x.split(rows, dim=1) for x in (query, *own)), attention_mask.split(rows), strict=True)
        return torch.cat([read(q, k, v, keys, values, mask) for q, k, v, mask in parts]), None


def read(query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Let scaled queries (H, b, T, D) read `keys` and `values` (H, P, D), and their own row: (b, T, H, D)."""
    stream = query.flatten(1, 2)  # (H, b*T, D)
    of_prefix = (stream @ keys.mT).view(*query.shape[:-1], -1)  # (H, b, T, P)
    of_row = query @ key.mT + mask[:, 0]  # (H, b, T, T)
    weights = torch.cat((of_prefix, of_row), dim=-1).softmax(dim=-1)
    of_prefix, of_row = weights.split((keys.shape[1], key.shape[2]), dim=-1)
    result = (of_prefix.flatten(1, 2) @ values).view(query.shape) + of_row @ value  # (H, b, T, D)
    return result.permute(1, 2, 0, 3)


def heads_first(x: Tensor) -> Tensor:
    """Lay out (B, H, T, D) as (H, B, T, D)."""
    return x.transpose(0, 1).contiguous()


def rows_at_once(query: Tensor, prefix: int) -> int:
    """Say how many rows of queries (H, B, T, D) have few enough scores."""
    heads, _, length, _ = query.shape
    most = MOST_SCORES.get(query.device.type, MOST_SCORES_ELSEWHERE)
    return max(1, most // (heads * length * (prefix + length)))
