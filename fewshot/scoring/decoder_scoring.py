"""Log-likelihoods of answers by decoders: what texts share is read once.

Ours read trees: the beginning of a family comes from a cache, and all answers to a question continue it in
one row (`prefix_tree.py`). The cached beginning is neither copied nor repeated for the rows: its keys are the
same for all, so that the queries of all make one product with them, and a second one with those of their own
row (Juravsky et al., 2024, Hydragen, section 3; there the softmaxes of both are joined by their sums, here
one goes over all scores). Stock models continue an expanded cache with one row for each answer, which any
model with a cache can. Both are equal to reading every text by itself (`definition.py`).

Shapes: B rows, P cached tokens, T positions of a row, N tokens of a packed stream, C model width, H query
heads, G key-value heads, D head width.
"""

import copy
from collections.abc import Iterator, Sequence
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache

from ...modeling import TercetDecoderForCausalLM
from ...modeling.attention.packing import Masks
from ...modeling.attention.patterns import PATTERNS
from ...modeling.compatibility import CACHE, cache_parameter
from ...modeling.saved.length import ROBERTA_LIKE
from ..prompts.request import Request, Score, Scorer
from .few_positions import Targets, fast_products, head_only_at, scores_of_few
from .layout import packed, padded
from .prefix_tree import PrefixTree, by_size, find_families, grow_trees


class TreeScorer(Scorer):
    """A decoder of ours."""

    def __init__(self, model: TercetDecoderForCausalLM, tokens_at_once: int):
        self.model, self.tokens_at_once = model, tokens_at_once
        config = model.config
        is_masked = str(config._attn_implementation) in ("sdpa", "eager")
        # A bias counts indices of keys, which in a tree are no distances; a shared prefix needs dot products.
        self.may_branch = is_masked and not config.has_score_bias and config.has_dot_products
        self.may_cache = self.may_branch and set(config.types_of_layers) == {"full_attention"}

    @torch.inference_mode()
    def score(self, requests: Sequence[Request]) -> Iterator[tuple[int, Score]]:
        for family in find_families(requests, may_cache=self.may_cache):
            cache = self.read(requests[family.members[0]].ids[: family.prefix])
            trees = grow_trees(requests, family, may_branch=self.may_branch)
            for batch in by_size([len(tree.tokens) for tree in trees], self.tokens_at_once):
                yield from self.score_trees(
                    [trees[number] for number in batch], requests, cache, family.prefix
                )

    def read(self, prefix: tuple[int, ...]) -> Cache | None:
        """Cache what a family has in common, if anything."""
        if not prefix:
            return None
        ids = torch.tensor([prefix], device=self.model.device)
        none = torch.tensor([0], device=ids.device)  # of its states is asked for, but no product has no rows
        with fast_products(self.model):
            return self.model.model(ids, use_cache=True, output_positions=none)[CACHE]

    def score_trees(
        self, trees: list[PrefixTree], requests: Sequence[Request], cache: Cache | None, prefix: int
    ) -> Iterator[tuple[int, Score]]:
        """Score the answers of trees in one pass."""
        if cache is None and all(tree.is_path for tree in trees):
            begins, inputs = packed([tree.tokens for tree in trees], self.model.device)
        else:
            begins, inputs = self.in_rows(trees, cache, prefix)
        positions = [
            [begin + node for node in path]
            for begin, tree in zip(begins, trees, strict=True)
            for path in tree.positions
        ]
        numbers = [number for tree in trees for number in tree.members]
        targets = Targets(positions, [requests[number].answer for number in numbers], self.model.device)
        scores = scores_of_few(self.model, targets, inputs | {"use_cache": False})
        yield from zip(numbers, scores, strict=True)

    def in_rows(
        self, trees: list[PrefixTree], cache: Cache | None, prefix: int
    ) -> tuple[list[int], dict[str, Any]]:
        """Lay each tree into a row (B, T) behind what is cached, and return where each begins."""
        width = max(len(tree.tokens) for tree in trees)
        ids = np.zeros((len(trees), width), dtype=np.int64)
        depths = np.zeros((len(trees), width), dtype=np.int64)
        sees = np.zeros((len(trees), width, width), dtype=bool)
        for row, tree in enumerate(trees):
            length = len(tree.tokens)
            ids[row, :length], depths[row, :length] = tree.tokens, tree.depths
            sees[row, :length, :length] = tree.ancestors()
        device = self.model.device
        positions = torch.from_numpy(depths).to(device) + prefix
        inputs: dict[str, Any] = {
            "input_ids": torch.from_numpy(ids).to(device),
            "attention_mask": self.masks(torch.from_numpy(sees).to(device), positions),
            "position_ids": positions,
        }
        if cache is not None:
            inputs["kernel"] = SharedPrefix(cache)
        return [row * width for row in range(len(trees))], inputs

    def masks(self, sees: Tensor, positions: Tensor) -> Masks:
        """Turn who sees whom (B, T, T) into masks (B, 1, T, T), one for each type of layer."""
        config = self.model.config
        masks: Masks = {}
        for kind in dict.fromkeys(config.types_of_layers):
            allowed = sees & PATTERNS[kind](config, is_causal=True).allows(
                positions[:, :, None], positions[:, None]
            )
            added = torch.zeros(allowed.shape, dtype=self.model.dtype, device=allowed.device)
            added.masked_fill_(~allowed, torch.finfo(added.dtype).min)
            masks[kind] = added[:, None]
        return masks


class CacheScorer(Scorer):
    """A stock decoder: the beginning of a family is cached if it can be, each answer is a row behind it."""

    def __init__(self, model: PreTrainedModel, tokens_at_once: int):
        self.model, self.tokens_at_once = model, tokens_at_once
        takes = signature(type(model).forward).parameters
        self.cache_name = cache_parameter(model)
        self.may_cache = self.cache_name is not None and not has_recurrent_states(model)
        # Those count from the pad's id on; they do so themselves, behind a cache, too.
        self.takes_positions = "position_ids" in takes and model.config.model_type not in ROBERTA_LIKE

    @torch.inference_mode()
    def score(self, requests: Sequence[Request]) -> Iterator[tuple[int, Score]]:
        for family in find_families(requests, may_cache=self.may_cache, counts_answers=True):
            cache = self.read(requests[family.members[0]].ids[: family.prefix])
            sizes = [len(requests[number].ids) - family.prefix for number in family.members]
            for batch in by_size(sizes, self.tokens_at_once):
                numbers = [family.members[place] for place in batch]
                yield from zip(
                    numbers,
                    self.score_rows([requests[n] for n in numbers], cache, family.prefix),
                    strict=True,
                )

    def read(self, prefix: tuple[int, ...]) -> Cache | None:
        """Cache what a family has in common, if anything."""
        if not prefix:
            return None
        ids = torch.tensor([prefix], device=self.model.device)
        with head_only_at(
            self.model, torch.tensor([0], device=ids.device)
        ):  # none of its logits is asked for
            return self.model(ids, use_cache=True)[CACHE]

    def score_rows(self, requests: list[Request], cache: Cache | None, prefix: int) -> list[Score]:
        """Score requests in one pass behind what is cached."""
        rows = [request.ids[prefix:-1] for request in requests]
        ids, mask = padded(rows, self.model.device)
        width = ids.shape[1]
        firsts = [number * width + len(r.context) - prefix - 1 for number, r in enumerate(requests)]
        positions = [range(first, first + len(r.answer)) for first, r in zip(firsts, requests, strict=True)]
        inputs: dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": torch.nn.functional.pad(mask, (prefix, 0), value=1),
            "use_cache": cache is not None,
        }
        if cache is not None:
            inputs[str(self.cache_name)] = expanded(cache, len(rows))
        if self.takes_positions:
            inputs["position_ids"] = (torch.arange(width, device=ids.device) + prefix)[None].expand(
                len(rows), -1
            )
        targets = Targets(positions, [request.answer for request in requests], ids.device)
        return scores_of_few(self.model, targets, inputs)


def has_recurrent_states(model: PreTrainedModel) -> bool:
    """Return whether a layer keeps other states than keys and values, which caches do not repeat for rows."""
    return any(hasattr(layer, "conv_states") for layer in DynamicCache(config=model.config).layers)


def expanded(cache: Cache, rows: int) -> Cache:
    copied = copy.deepcopy(cache)
    copied.batch_repeat_interleave(rows)
    return copied


MOST_SCORES = {"cpu": 2**20}
"""Scores that are held at once, at most, by the type of the device: as many as a processor's cache holds."""

MOST_SCORES_ELSEWHERE = 2**26


class SharedPrefix:
    """A kernel of attention, for models of ours: every row reads what is cached of one text, and itself."""

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
    """Return how many rows of queries (H, B, T, D) have few enough scores."""
    heads, _, length, _ = query.shape
    most = MOST_SCORES.get(query.device.type, MOST_SCORES_ELSEWHERE)
    return max(1, most // (heads * length * (prefix + length)))
