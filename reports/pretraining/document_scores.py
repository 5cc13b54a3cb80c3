"""How sure the scores of a finished run are: loss and hits of every held-out document, and their bootstrap.

    held-out examples -> the same batches as in evaluation -> sums of each sequence -> of each document

Documents are drawn with replacement (`training/metrics/bootstrap.py`), because the tokens of one are alike:
intervals over single tokens would be too narrow. A text of fewer than `FEWEST_ROWS` documents is drawn by
its sequences, and one of fewer sequences has no intervals.

Shapes: D documents, or sequences, E examples, n targets of a batch, R resamples.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from ...data.chunks import FullSequences, ParallelPairs
from ...data.steps.batches import StepDataset
from ...data.steps.examples import Examples
from ...data.steps.objective import COMPONENT, Batch, Objective, on_device
from ...data.steps.packing import select_sequences, sequence_lengths, slice_sequences
from ...data.steps.step_planning import share
from ...data.steps.workers import DataCursor
from ...pretraining.objectives.teacher_forcing import CorruptedTexts
from ...training.devices.precision import Precision, products_in
from ...training.evaluation import LARGEST_LOSS, undisturbed_randomness
from ...training.metrics.bootstrap import bootstrap_scores, percentile_interval
from ...training.mixture import MixedExamples, MixedObjective
from ...training.token_objective import TokenObjective
from ..scores import INTERVAL
from ..verdicts import FEWEST_ROWS, Interval

MOST_SCORED = 5_000_000
"""Held-out tokens that are scored once more for the sake of intervals, which would be narrow anyway."""

DOCUMENT, SEQUENCE = "document", "sequence"
"""What is drawn."""


@dataclass(frozen=True)
class UnitScores:
    """What a term sums up to in each document (D,), or each sequence."""

    loss: np.ndarray
    """Nats."""
    hits: np.ndarray
    """Targets whose likeliest answer is right."""
    targets: np.ndarray
    """Number of targets."""
    no_context: np.ndarray
    """Nats of the best guess that ignores the context: each target by its frequency among all of them."""
    unit: str
    """`document` or `sequence`."""
    bounds: np.ndarray | None = None
    """Where what stands for each document begins among all tokens and ends, and the last one stops (D + 1,);
    none of pairs."""

    @property
    def number(self) -> int:
        return int((self.targets > 0).sum())

    def intervals(self, term: str) -> dict[str, Interval]:
        """Return the 95 % intervals of a term's scores, by their names."""
        ends = percentile_interval(ratios(self.loss, self.targets))
        of = f"{term}/{{}}/{INTERVAL}".format
        return {
            of("loss"): ends,
            of("perplexity"): (perplexity(ends[0]), perplexity(ends[1])),
            of("accuracy"): percentile_interval(ratios(self.hits, self.targets)),
        }

    def above_no_context(self) -> Interval:
        """Return the 95 % interval of how far the loss is above that of the best guess without context."""
        return percentile_interval(ratios(self.loss - self.no_context, self.targets))

    def above(self, other: np.ndarray, targets: np.ndarray) -> Interval:
        """Return the same beside another model's sums of nats and numbers of targets, by document (D,)."""
        return percentile_interval(ratios(self.loss, self.targets) - ratios(other, targets))


def perplexity(loss: float) -> float:
    """Return the perplexity of a loss, as `evaluate` does."""
    return math.inf if loss >= LARGEST_LOSS else math.exp(loss)


def ratios(sums: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the mean per target of units drawn again and again, (R,); the draws depend on D alone."""
    return bootstrap_scores(lambda drawn: float(sums[drawn].sum() / max(targets[drawn].sum(), 1)), len(sums))


def unit_scores(
    model: nn.Module, steps: StepDataset | None, device: torch.device, precision: Precision
) -> dict[str, UnitScores]:
    """Score each held-out document by a model, for every term that predicts tokens.

    There are none of texts that are not cut into documents (pairs of sentences, characters), nor of more than
    `MOST_SCORED` tokens.

    Args:
        model: On the device, in evaluation mode.
        steps: What the model is measured on, cut as in the evaluation, if anything.
    """
    if steps is None:
        return {}
    examples, planned = steps.plan(0)
    parts = parts_of(steps.objective, examples)
    if not parts or int(np.sum(examples.lengths)) > MOST_SCORED:
        return {}
    found = {part.term: Found([], [], []) for part in parts}
    computing = products_in(precision, device)
    with undisturbed_randomness(device), torch.inference_mode(), computing:
        for number, indices in enumerate(planned):
            for batch in steps.collate(DataCursor(0, number, number)):
                part = parts[batch.pop(COMPONENT, 0)]
                chosen = part.chosen(examples, indices)
                for rows, micro_batch in cut(batch, steps.tokens_per_micro_batch):
                    own = on_device(micro_batch, device)
                    found[part.term].add(chosen[rows], *scored(part.objective, model, own))
    return {part.term: part.by_unit(found[part.term]) for part in parts if found[part.term].labels}


@dataclass(frozen=True)
class Found:
    """What the targets of a term came to, batch by batch."""

    examples: list[np.ndarray]
    """The example of each target."""
    labels: list[np.ndarray]
    """What is right at each target, an id."""
    sums: list[np.ndarray]
    """Loss and hit of each, (2, n)."""

    def add(self, rows: np.ndarray, places: np.ndarray, labels: np.ndarray, sums: np.ndarray) -> None:
        """Take a batch's targets, which lie in these places of its sequences' examples (S,)."""
        self.examples.append(rows[places])
        self.labels.append(labels)
        self.sums.append(sums)


@dataclass(frozen=True)
class Part:
    """An objective that predicts tokens, alone or in a mixture."""

    term: str
    """Its term of the loss."""
    objective: TokenObjective
    number: int | None
    """In the mixture."""
    documents: np.ndarray
    """The document that each example is from, or begins in (E,)."""
    num_documents: int
    """D, of the corpus."""
    bounds: np.ndarray | None
    """As in `UnitScores`."""

    def chosen(self, examples: Examples, indices: np.ndarray) -> np.ndarray:
        """Return which of the objective's own examples are at `indices` of all."""
        if self.number is None:
            return indices
        assert isinstance(examples, MixedExamples)
        return examples.indices[indices[examples.components[indices] == self.number]]

    def by_unit(self, found: Found) -> UnitScores:
        """Add up what targets came to, by document if there are enough of them."""
        examples, labels = map(np.concatenate, (found.examples, found.labels))
        _, kinds, counts = np.unique(labels, return_inverse=True, return_counts=True)
        by_frequency = -np.log(counts / len(labels))[kinds]
        is_enough = len(np.unique(self.documents[examples])) >= FEWEST_ROWS
        units = self.documents[examples] if is_enough else examples
        size = self.num_documents if is_enough else len(self.documents)
        loss, hits, targets, no_context = (
            np.bincount(units, row, minlength=size)
            for row in (*np.concatenate(found.sums, axis=1), np.ones(len(labels)), by_frequency)
        )
        unit = DOCUMENT if is_enough else SEQUENCE
        return UnitScores(loss, hits, targets, no_context, unit, self.bounds)


def parts_of(objective: Objective, examples: Examples) -> list[Part]:
    """List the objectives that are measured, in a mixture's order; none if one of them has no documents."""
    named: list[tuple[str, Objective, int | None, Examples]] = []
    if isinstance(objective, MixedObjective) and isinstance(examples, MixedExamples):
        own = zip(objective.names, objective.objectives, examples.parts, strict=True)
        named = [
            (next(iter(names.values())), each, number, part) for number, (names, each, part) in enumerate(own)
        ]
    elif isinstance(objective, TokenObjective):
        named = [(objective.term, objective, None, examples)]
    parts = []
    for term, each, number, own in named:
        documents = documents_of(own)
        if not isinstance(each, TokenObjective) or documents is None:
            return []
        parts.append(Part(term, each, number, *documents))
    return parts


def documents_of(examples: Examples) -> tuple[np.ndarray, int, np.ndarray | None] | None:
    """Return the document that each example is from, or begins in (E,), and how many there are, if known.

    Behind them, the bounds of the stretches that the examples which begin in a document read (D + 1,).
    """
    if isinstance(examples, CorruptedTexts):
        return documents_of(examples.texts)
    if isinstance(examples, ParallelPairs):
        return examples.documents, examples.source.num_documents, None
    if isinstance(examples, FullSequences):
        starts = examples.document_starts
        documents = np.searchsorted(starts, examples.starts, side="right") - 1
        bounds = np.append(examples.starts, starts[-1])[np.searchsorted(examples.starts, starts)]
        return documents, examples.corpus.num_documents, bounds
    return None


def cut(batch: Batch, tokens: int) -> Iterator[tuple[np.ndarray, Batch]]:
    """Cut a batch into micro-batches of at most so many tokens, each with the numbers of its sequences."""
    mine, edges = share(sequence_lengths(batch), tokens, num_processes=1, process_index=0)
    ordered = select_sequences(batch, mine)
    for first, last in pairwise(edges):
        yield mine[first:last], slice_sequences(ordered, first, last)


def scored(
    objective: TokenObjective, model: nn.Module, batch: Batch
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Score the targets of a batch one by one, which `TokenObjective.scores` adds up.

    Returns:
        The sequence of each target (n,), its token (n,), and its loss and hit (2, n).
    """
    positions, labels = objective.output_positions(batch)
    logits = objective.logits_at(model, batch, positions).float()
    losses = F.cross_entropy(logits, labels, reduction="none")
    hits = logits.argmax(dim=-1) == labels
    edges = batch["cu_seq_lens_q"].to(positions.dtype)
    places = torch.searchsorted(edges, positions, right=True) - 1
    sums = torch.stack([losses.double(), hits.double()])
    return places.cpu().numpy(), labels.cpu().numpy(), sums.cpu().numpy()
