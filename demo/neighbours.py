"""What stands between two words, by counting: the baseline of gaps and of telegrams.

The counts of a thing's left and of its right neighbours are taken as independent (naive Bayes), each smoothed
by `SMOOTHING` counts that follow the neighbour's frequency; a neighbour that was never seen says nothing:

    p(thing | left, right)  ~  c(thing)  (c(left, thing) + m p(left)) / (c(thing) + m)
                                         (c(thing, right) + m p(right)) / (c(thing) + m)

Legend: K different things.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

SMOOTHING = 10.0
"""The m above."""

Beside = dict[str, Counter[int]]
"""A neighbour -> numbers of the things beside it, and how often."""


@dataclass(frozen=True, eq=False)
class NeighbourCounts:
    """What was seen between which words."""

    things: list[str]
    """What may stand in between."""
    counts: np.ndarray
    """How often each was seen, (K,)."""
    before: Beside
    """By the word on the left."""
    behind: Beside
    """By the word on the right."""

    @classmethod
    def fit(cls, seen: Iterable[tuple[str, str, str]]) -> "NeighbourCounts":
        """Count what was seen: the word on the left, the thing, the word on the right."""
        numbers: dict[str, int] = {}
        before: Beside = defaultdict(Counter)
        behind: Beside = defaultdict(Counter)
        counts: Counter[int] = Counter()
        for left, thing, right in seen:
            number = numbers.setdefault(thing, len(numbers))
            counts[number] += 1
            before[left][number] += 1
            behind[right][number] += 1
        frequencies = np.array([counts[number] for number in range(len(numbers))], dtype=np.float64)
        return cls(list(numbers), frequencies, dict(before), dict(behind))

    def best(self, left: str, right: str, count: int = 1) -> list[str]:
        """Return the likeliest things between two words, best first."""
        scores = self.counts * self._share(self.before, left) * self._share(self.behind, right)
        return [self.things[number] for number in np.argsort(-scores, kind="stable")[:count]]

    def most_frequent(self, count: int) -> list[str]:
        """Return the most frequent things, whatever is beside them."""
        return [self.things[number] for number in np.argsort(-self.counts, kind="stable")[:count]]

    def _share(self, beside: Beside, neighbour: str) -> np.ndarray:
        """Return how probable a neighbour is beside each thing, (K,); 1 if it was never seen."""
        if neighbour not in beside:
            return np.ones(len(self.things))
        own = beside[neighbour]
        joint = np.full(len(self.things), SMOOTHING * sum(own.values()) / self.counts.sum())
        joint[list(own)] += list(own.values())
        return joint / (self.counts + SMOOTHING)
