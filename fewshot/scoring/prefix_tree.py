"""What texts have in common is read once.

    family     many texts with a long common beginning (description and demonstrations): it is cached
    tree       what few texts share behind that (the question): a row in which every node sees its ancestors

Texts in alphabetical order of their ids have those next to them with which they share most. In a tree, all
answers to a question stand in one row behind it: a mask keeps them apart, and positions count ancestors, as
in tree attention of speculative decoding (Miao et al., 2024, SpecInfer, section 4.2).

Legend: P tokens of a family's prefix, T nodes of a tree.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ..prompts.request import Request

LEAST_PREFIX = 24
"""Tokens that are worth a cache, if enough texts share them."""

LEAST_SAVED = 128
"""Tokens that need not be read again for a family to be worth its own batches."""

LARGEST_TREE = 2
"""Nodes of a tree, at most, as a multiple of its first text: attention costs their square."""


@dataclass(frozen=True)
class Family:
    """Requests that begin alike."""

    prefix: int
    """How many tokens they have in common, and none of them asks for; 0 if nothing is cached."""
    members: list[int]
    """Their numbers, in alphabetical order of their ids."""
    shared: list[int]
    """How many tokens each has in common with the member before it."""


@dataclass
class PrefixTree:
    """Several texts, each a path from the root.

    Nodes are numbered as they are added: `tokens` are their ids, `parents` the nodes before them, -1 for
    children of the cached prefix, and `depths` count from those, from 0.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    """Numbers of the requests."""
    positions: list[list[int]] = field(default_factory=list)
    """The nodes that predict the tokens of the answer, for each member."""
    _children: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, number: int, request: Request, prefix: int) -> None:
        """Add a request, whose last token predicts nothing and is left out."""
        node, path = -1, []
        for token in request.ids[prefix:-1]:
            child = self._children.get((node, token))
            if child is None:
                child = self._children[node, token] = len(self.tokens)
                self.depths.append(1 + self.depths[node] if node >= 0 else 0)
                self.tokens.append(token)
                self.parents.append(node)
            path.append(node := child)
        self.members.append(number)
        self.positions.append(path[len(request.context) - prefix - 1 :])

    @property
    def is_path(self) -> bool:
        """Whether nothing branches, so that causal attention is all it needs."""
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    def ancestors(self) -> np.ndarray:
        """Return which nodes each node sees: itself and its ancestors, (T, T)."""
        sees = np.zeros((len(self.tokens), len(self.tokens)), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                sees[node] = sees[parent]
            sees[node, node] = True
        return sees


def find_families(
    requests: Sequence[Request], *, may_cache: bool = True, counts_answers: bool = False
) -> list[Family]:
    """Divide requests into families; those that share too little make up one without a prefix, the last.

    Args:
        requests: Requests of a decoder.
        may_cache: Whether the model can continue a cache; otherwise no family has a prefix.
        counts_answers: Whether each request is read by itself, or those of one context in a tree.
    """
    order = sorted(range(len(requests)), key=lambda number: requests[number].ids)
    shared = [0, *(common_length(requests[a].ids, requests[b].ids) for a, b in pairwise(order))]
    families, rest, begin = [], [], 0
    while begin < len(order):
        prefix, end = (
            longest_family(requests, order, shared, begin, counts_answers) if may_cache else (0, begin + 1)
        )
        if prefix:
            families.append(Family(prefix, order[begin:end], [prefix, *shared[begin + 1 : end]]))
        else:
            rest.append(begin)
            end = begin + 1
        begin = end
    if rest:
        own = [0, *(min(shared[before + 1 : after + 1]) for before, after in pairwise(rest))]
        families.append(Family(0, [order[place] for place in rest], own))
    return families


def longest_family(
    requests: Sequence[Request], order: list[int], shared: list[int], begin: int, counts_answers: bool
) -> tuple[int, int]:
    """Return prefix and end of the family from a place on that saves most; no prefix if none saves enough."""
    first = requests[order[begin]]
    common, contexts, best = len(first.context) - 1, 1, (LEAST_SAVED, 0, begin + 1)
    for place in range(begin + 1, len(order)):
        request = requests[order[place]]
        common = min(common, shared[place], len(request.context) - 1)
        if common < LEAST_PREFIX:
            break
        contexts += counts_answers or request.context != requests[order[place - 1]].context
        best = max(best, (common * (contexts - 1), common, place + 1))
    return best[1], best[2]


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Count the tokens that two texts have in common at their beginning.

    >>> common_length((1, 2, 3), (1, 2, 4, 5)), common_length((), (1,))
    (2, 0)
    """
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def grow_trees(requests: Sequence[Request], family: Family, *, may_branch: bool = True) -> list[PrefixTree]:
    """Put the members of a family into trees: with the one before if it shares half of its own tokens."""
    trees: list[PrefixTree] = []
    room = 0
    for number, shared in zip(family.members, family.shared, strict=True):
        request = requests[number]
        own = len(request.ids) - family.prefix - 1
        is_near = trees and may_branch and 2 * (shared - family.prefix) >= own
        if not is_near or len(trees[-1].tokens) + own - (shared - family.prefix) > room:
            trees.append(PrefixTree())
            room = LARGEST_TREE * own + 8
        trees[-1].add(number, request, family.prefix)
    return trees


def by_size(sizes: Sequence[int], budget: int) -> list[list[int]]:
    """Divide things of these sizes into batches of like ones, each within a budget of padded tokens.

    >>> by_size([3, 9, 4], budget=10)
    [[1], [2, 0]]
    """
    batches: list[list[int]] = []
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        if batches and sizes[batches[-1][0]] * (len(batches[-1]) + 1) <= budget:
            batches[-1].append(number)
        else:
            batches.append([number])
    return batches
