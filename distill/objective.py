"""Distillation as an objective: what is learned from the text, and what from a teacher that reads along.

    loss = weight * objective  +  weight * distillation loss  +  ...
           (in DistilBERT, 2 mlm + 5 soft targets + 1 cosine)

Student and teacher each read a batch once. The objective's own loss comes from the logits that these losses
compare, at the targets alone.

Shapes: n targets, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ..data.steps.examples import gather
from ..data.steps.objective import INDEX, Batch, Example, Objective
from ..data.steps.packing import Ragged
from ..data.steps.static_shapes import POSITIONS
from ..modeling.heads.losses import cross_entropy_sum
from ..training.token_objective import TokenObjective, token_scores
from .losses import DistillationLoss
from .model_outputs import ModelOutputs, RequiredOutputs, without_filling

if TYPE_CHECKING:
    from .on_policy import OnPolicy


class Teacher(Protocol):
    """Whatever says what a teacher makes of a batch: itself, or a cache of it."""

    missing: Mapping[str, float] | None
    """Temperature -> the probability that a cache lacks, on average; `None` without a cache."""

    def compute_outputs(self, batch: Batch, positions: Tensor) -> ModelOutputs:
        """Read a batch, or remember having read it; what comes back are constants."""
        ...


class Distillation(Objective):
    """Learn a pretraining objective, and from a teacher's predictions.

    Terms are the objective's and each distillation loss. Held-out text is scored by the objective alone.

    Args:
        base: What is learned from the text, and how batches are made.
        base_weight: What it counts; 0 leaves it out.
        losses: What is compared with the teacher.
        teacher: Reads the same batches, if there are losses.
        on_policy: Lets the student write the targets of some steps; its objective counts nothing then.
    """

    def __init__(
        self,
        base: TokenObjective,
        base_weight: float,
        losses: Sequence[DistillationLoss],
        teacher: Teacher,
        on_policy: "OnPolicy | None" = None,
    ):
        self.base = base
        self.reads_whole_step = base.reads_whole_step
        self.on_policy = on_policy
        self.teacher_losses = list(losses)
        self.teacher = teacher
        own = {base.term: base_weight} if base_weight else {}
        self.weights = own | {loss.kind: loss.weight for loss in losses}
        if not self.weights:
            raise ValueError(
                "losses is empty and objective_weight is 0, so there is no loss: set one of them"
            )

    @property
    def needs(self) -> RequiredOutputs:
        needs = required_outputs(self.teacher_losses)
        return needs._replace(logits=True) if self.base.term in self.weights else needs

    @property
    def scored(self) -> Sequence[str]:
        # a teacher's loss on held-out text is no measure of the student
        return [self.base.term]

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        # `index` (S,) says which example each sequence is
        batch = self.base.collate(examples, seed)
        index: Ragged = gather(examples, "index")
        batch |= {INDEX: as_tensor(index.values)}
        return batch if self.on_policy is None else self.on_policy.draw(batch, seed)

    def predicted(self, batch: Batch) -> Tensor | None:
        # what a student writes has no fixed size
        return None if self.on_policy is not None else self.base.predicted(batch)

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        own = self.base.targets(batch)
        predicted = own[self.base.term] if self.on_policy is None else self.on_policy.count(batch)
        return own | {loss.kind: loss.count(batch, predicted) for loss in self.teacher_losses}

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        if self.on_policy is None:
            places = self.base.output_positions(batch)
        else:
            batch, places = self.on_policy.write(batch)
        found: ModelOutputs = model(batch, places.positions)
        losses: dict[str, Tensor] = {}
        if self.teacher_losses:
            own, right = found, self.teacher.compute_outputs(batch, places.positions)
            if POSITIONS in batch:
                own, right = (without_filling(each, batch, places.labels) for each in (own, right))
            losses = {loss.kind: loss.compute(own, right, batch) for loss in self.teacher_losses}
        if self.base.term in self.weights:
            assert found.logits is not None
            losses[self.base.term] = cross_entropy_sum(
                found.logits, places.labels, self.base.label_smoothing, self.base.z_loss
            )
        return losses

    def scores(self, model: nn.Module, batch: Batch) -> dict[str, dict[str, Tensor]]:
        places = self.base.output_positions(batch)
        found: ModelOutputs = model(batch, places.positions, RequiredOutputs(logits=True))
        assert found.logits is not None
        return {self.base.term: token_scores(found.logits, places.labels)}


def required_outputs(losses: Sequence[DistillationLoss]) -> RequiredOutputs:
    return RequiredOutputs(*map(any, zip(RequiredOutputs(), *(loss.needs for loss in losses), strict=True)))


def as_tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.int64))
