"""A mixture of objectives: one run, one model, several things to learn, each with its share of the tokens.

    source of each objective --MixedSource--> one list of examples, each for one objective
    a step's examples --MixedObjective.collate_parts--> one batch for each objective
    loss of a step = sum over objectives of  share * (its own loss, divided by its own targets)

An epoch has as many tokens as one pass over the text, whatever the number of objectives: each reads its share
of it, another one in every epoch. Objectives that cut the text alike read every example once between them.

Legend: E examples of an epoch, K objectives.
"""

from collections.abc import Container, Iterator, Sequence
from itertools import chain, count, pairwise
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..data.steps.examples import Examples, ExampleSource, PackableExamples, left_out_of, pick
from ..data.steps.objective import COMPONENT, Batch, Example, Objective


class MixedExamples(PackableExamples):
    """Examples of several objectives, one after another.

    Args:
        parts: Examples of each objective.
        chosen: Which of them are in the list, for each objective.
    """

    def __init__(self, parts: Sequence[Examples], chosen: Sequence[np.ndarray]):
        self.parts = parts
        self.indices = np.concatenate(list(chosen))
        self.components = np.repeat(np.arange(len(parts)), [len(indices) for indices in chosen])
        """Number of the objective that each example is for (E,)."""
        self.lengths = np.concatenate(
            [np.asarray(part.lengths)[indices] for part, indices in zip(parts, chosen, strict=True)]
        )
        """Tokens of each (E,)."""
        self.left_out = tuple(dict.fromkeys(chain.from_iterable(map(left_out_of, parts))))

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Example:
        component = int(self.components[index])
        return {**self.parts[component][int(self.indices[index])], COMPONENT: component}

    def pack(self, indices: np.ndarray) -> "MixedPick":  # pyright: ignore[reportIncompatibleMethodOverride]
        return MixedPick(self, indices)


class MixedPick(Sequence[Example]):
    """Some examples of a mixture."""

    def __init__(self, examples: MixedExamples, indices: np.ndarray):
        self.examples = examples
        self.indices = indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self.examples[int(number)] for number in self.indices[index]]
        return self.examples[int(self.indices[index])]

    def by_component(self) -> Iterator[tuple[int, Sequence[Example]]]:
        """Yield the examples of each objective that has some, with the objective's number."""
        components = self.examples.components[self.indices]
        for component in np.unique(components):
            chosen = self.examples.indices[self.indices[components == component]]
            yield int(component), pick(self.examples.parts[component], chosen)


class MixedSource:
    """An `ExampleSource` that gives each objective its share of every epoch.

    Args:
        sources: Source of each objective (K).
        shares: Share of the tokens of each objective (K,), which sum to 1.
        seed: Seed of the choice which example is for which objective.
        whole: Whether each objective reads everything instead, as in evaluation.
    """

    def __init__(
        self, sources: Sequence[ExampleSource], shares: Sequence[float], seed: int, *, whole: bool = False
    ):
        self.sources = sources
        self.shares = np.asarray(shares)
        self.seed = seed
        self.whole = whole

    def epoch(self, number: int) -> MixedExamples:
        parts = [source.epoch(number) for source in self.sources]
        if self.whole:
            return MixedExamples(parts, [np.arange(len(part)) for part in parts])
        ends = np.concatenate([[0.0], np.cumsum(self.shares) / self.shares.sum()])
        chosen = []
        for part, (first, last) in zip(parts, pairwise(ends), strict=True):
            # The same permutation for lists of the same length: then no example is chosen twice.
            order = np.random.default_rng([2, self.seed, number]).permutation(len(part))
            chosen.append(np.sort(order[round(first * len(part)) : round(last * len(part))]))
            if not len(chosen[-1]):
                raise ValueError(
                    f"objective {len(chosen)} of the mixture has a share of {last - first:.2g}, none "
                    f"of its {len(part):,} examples: raise its share, or add more text"
                )
        return MixedExamples(parts, chosen)


class MixedObjective(Objective):
    """Several objectives, each with its share of the loss; a batch says by `COMPONENT` which it is for.

    Terms keep their names; where two objectives have one of the same name, the second's ends with `_2`.

    Args:
        objectives: What is learned (K).
        shares: Share of each in the loss (K), which sum to 1.
    """

    uses_all_parameters = False

    def __init__(self, objectives: Sequence[Objective], shares: Sequence[float]):
        self.objectives = list(objectives)
        self.shares = list(shares)
        self.can_be_recorded = all(objective.can_be_recorded for objective in objectives)
        self.reads_whole_step = any(objective.reads_whole_step for objective in objectives)
        self.weights = {}
        self.names: list[dict[str, str]] = []
        """Names in the mixture of each objective's terms (K)."""
        for objective, share in zip(objectives, shares, strict=True):
            names = {term: unused(term, self.weights) for term in objective.weights}
            self.weights |= {names[term]: share * weight for term, weight in objective.weights.items()}
            self.names.append(names)

    @property
    def scored(self) -> Sequence[str]:
        parts = zip(self.objectives, self.names, strict=True)
        return [names[term] for objective, names in parts for term in objective.scored]

    def at(self, progress: float) -> "MixedObjective":
        return MixedObjective([objective.at(progress) for objective in self.objectives], self.shares)

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        (batch,) = self.collate_parts(examples, seed)  # of one objective: several would make a batch each
        return batch

    def collate_parts(self, examples: Sequence[Example], seed: int) -> list[Batch]:
        batches = []
        for component, chosen in grouped(examples):
            batches.append(
                self.objectives[component].collate(chosen, seed + component) | {COMPONENT: component}
            )
        return batches

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        objective, names, rest = self.of(batch)
        return {names[term]: number for term, number in objective.targets(rest).items()}

    def predicted(self, batch: Batch) -> Tensor | None:
        objective, _, rest = self.of(batch)
        return objective.predicted(rest)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        objective, names, rest = self.of(batch)
        return {names[term]: loss for term, loss in objective.losses(model, rest).items()}

    def scores(self, model: nn.Module, batch: Batch) -> dict[str, dict[str, Tensor]]:
        objective, names, rest = self.of(batch)
        return {names[term]: scores for term, scores in objective.scores(model, rest).items()}

    def of(self, batch: Batch) -> tuple[Objective, dict[str, str], Batch]:
        """Return the objective of a batch, the names of its terms, and the batch as it knows it."""
        rest = {name: value for name, value in batch.items() if name != COMPONENT}
        return self.objectives[batch[COMPONENT]], self.names[batch[COMPONENT]], rest


def unused(term: str, names: Container[str]) -> str:
    """Return a name of a term that is not among those that others have."""
    numbered = (f"{term}_{number}" for number in count(2))
    return next(name for name in chain([term], numbered) if name not in names)


def grouped(examples: Sequence[Example]) -> Iterator[tuple[int, Sequence[Example]]]:
    """Yield the examples of each objective that has some, in the order of the objectives' numbers."""
    if isinstance(examples, MixedPick):
        yield from examples.by_component()
        return
    for component in sorted({example[COMPONENT] for example in examples}):
        chosen = [example for example in examples if example[COMPONENT] == component]
        yield (
            component,
            [{name: example[name] for name in example if name != COMPONENT} for example in chosen],
        )
