"""Several sources of examples in one run, each with its share of the tokens of every step.

    epoch     0              1              2
    wiki      ppppppppp|ppp  pppppp|pppppp  ...        at | a pass over its examples ends, and the next begins
    forum     ppp            ppp|           ppp        every step has as many tokens of it as its share says

An epoch has as many tokens as all sources together. A source with a larger share than its size is passed over
several times in it, one with a smaller share in several epochs once. Which examples an epoch has follows from
its number alone, so that a run resumes anywhere; a pass has every example once.

Legend: K sources, E examples of an epoch, S picked examples, L passes that an epoch touches.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from math import ceil, floor
from typing import Any

import numpy as np

from .examples import Examples, ExampleSource, PackableExamples, PackedExamples, gather, left_out_of, pick
from .objective import INDEX, Example
from .packing import Ragged, stretches


class WeightedSource:
    """An `ExampleSource` that takes from each of several sources its share of the tokens.

    Args:
        sources: By name (K).
        shares: Share of the tokens of each (K), relative to the others'; a source that has none is not read.
    """

    def __init__(self, sources: Mapping[str, ExampleSource], shares: Mapping[str, float], seed: int):
        if unknown := shares.keys() - sources.keys():
            raise ValueError(
                f"shares name {', '.join(sorted(unknown))}, but the texts are {', '.join(sources)}: use these"
            )
        if not any(shares.values()):
            raise ValueError(f"shares of {', '.join(sources)} are all 0: give one of them more")
        self.sources = sources
        self.seed = seed
        sizes = {name: int(np.sum(source.epoch(0).lengths)) for name, source in sources.items()}
        total = sum(shares.values())
        self.shares = {name: shares.get(name, 0.0) / total for name in sources}
        """Share of each source, which sum to 1."""
        self.passes = {name: share * sum(sizes.values()) / sizes[name] for name, share in self.shares.items()}
        """How often an epoch passes over what an epoch of each source has."""

    def epoch(self, number: int) -> "WeightedExamples":
        parts: list[Examples] = []
        chosen: list[np.ndarray] = []
        origins: list[int] = []
        laps: list[int] = []
        for origin, (name, source) in enumerate(self.sources.items()):
            first, last = number * self.passes[name], (number + 1) * self.passes[name]
            for lap in range(floor(first), ceil(last)):
                examples = source.epoch(lap)
                order = np.random.default_rng([3, self.seed, origin, lap]).permutation(len(examples))
                lengths = np.asarray(examples.lengths, dtype=np.int64)[order]
                middles = np.cumsum(lengths) - lengths / 2
                bounds = np.clip([first - lap, last - lap], 0, 1) * lengths.sum()
                begin, end = np.searchsorted(middles, bounds)
                parts.append(examples)
                chosen.append(order[begin:end])
                origins.append(origin)
                laps.append(lap)
        return WeightedExamples(parts, chosen, origins, laps)


class WeightedExamples(PackableExamples):
    """Examples of several sources, one source after another.

    Args:
        parts: Lists of examples (L).
        chosen: Which of them are in this list, of each part (L).
        origins: Numbers of the sources that the parts are from (L).
        laps: Numbers of the passes over these that the parts are of (L).
    """

    def __init__(
        self,
        parts: Sequence[Examples],
        chosen: Sequence[np.ndarray],
        origins: Sequence[int],
        laps: Sequence[int],
    ):
        self.parts = parts
        self.indices = np.concatenate(list(chosen))
        self.part = np.repeat(np.arange(len(parts)), [*map(len, chosen)])
        self.origins = np.asarray(origins)[self.part]
        """Number of the source that each example is from (E,)."""
        self.laps = np.asarray(laps)[self.part]
        """Number of the pass over it (E,)."""
        self.lengths = np.concatenate(
            [np.asarray(part.lengths)[own] for part, own in zip(parts, chosen, strict=True)]
        )
        """Tokens of each (E,)."""
        of_sources = dict(zip(reversed(origins), reversed(parts), strict=True))  # passes leave out the same
        self.left_out = tuple(
            chain.from_iterable(left_out_of(of_sources[origin]) for origin in sorted(of_sources))
        )
        if all(hasattr(part, "components") for part in parts):
            # The objective of a mixture that each is for.
            self.components = np.concatenate(
                [part.components[own] for part, own in zip(parts, chosen, strict=True)]  # pyright: ignore[reportAttributeAccessIssue]
            )

    @property
    def strata(self) -> np.ndarray:
        """Number the kinds of examples, by source and objective, of which every step has the same share.

        Beside the kind stands the pass over the source that an example is of (E, 2).
        """
        components = getattr(self, "components", np.zeros_like(self.origins))
        return np.stack([self.origins * (components.max() + 1) + components, self.laps], axis=1)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Example:
        """Make one example as its source does; `index` says where it is in this list."""
        return self.parts[int(self.part[index])][int(self.indices[index])] | {INDEX: index}

    def pack(self, indices: np.ndarray) -> Sequence[Example]:  # pyright: ignore[reportIncompatibleMethodOverride]
        # Field by field if all their parts can, else one by one.
        touched, which = np.unique(self.part[indices], return_inverse=True)
        order = np.argsort(which, kind="stable")
        picked: list[Any] = [
            pick(self.parts[int(part)], self.indices[indices[which == number]])
            for number, part in enumerate(touched)
        ]
        if not all(isinstance(part, PackedExamples) for part in picked):
            return [self[int(index)] for index in indices]
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        names = picked[0].makers if picked else ()
        return PackedExamples(
            self, indices, {name: partial(_in_order, picked, name, place) for name in names}
        )


def _in_order(picked: Sequence[Sequence[Example]], name: str, place: np.ndarray) -> Ragged:
    # A field of all examples, in the order that `place` (S,) gives.
    fields = [gather(part, name) for part in picked]
    together = Ragged(
        np.concatenate([field.values for field in fields]),
        np.concatenate([field.lengths for field in fields]),
    )
    lengths = together.lengths[place]
    return Ragged(together.values[stretches(together.edges[place], lengths)], lengths)


def tokens_of_sources(source: ExampleSource, examples: Examples, indices: np.ndarray) -> dict[str, int]:
    """Count the tokens of each weighted source among the examples at `indices` (S,), by its name."""
    if not isinstance(source, WeightedSource):
        return {}
    assert isinstance(examples, WeightedExamples)
    counts = np.bincount(examples.origins[indices], examples.lengths[indices], len(source.sources))
    return {name: int(count) for name, count in zip(source.sources, counts, strict=True)}
