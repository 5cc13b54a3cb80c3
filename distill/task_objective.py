"""Learning a task from a fine-tuned teacher: its answers are soft labels beside the rows' own.

    loss = hard weight * what the task's objective says of the labels      of rows that have some
         + soft weight * what parts the student's answers from the teacher's        of all rows

What an answer is differs from task to task, and so does what parts two of them: a class for each kind.

Shapes: S sequences of a batch, L labels, K choices, T tokens of the longest window, N packed tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..data.steps.examples import gather, has_field
from ..data.steps.objective import IGNORE, INDEX, Batch, Example, Objective, has_example, keep_or_blank
from ..data.steps.static_shapes import POSITIONS
from ..finetune.encoding import NO_WORD
from ..finetune.tasks.objectives import TaskObjective
from ..modeling import TercetPreTrainedModel
from ..modeling.heads.losses import at_least_float32
from ..training.devices.precision import choose_precision, products_in
from ..training.token_objective import without_targets
from .teacher import constant, moved

IS_LABELLED = "is_labelled"
"""What a batch, and each example, says of whether a row has a label: 1 or 0."""

IMPOSSIBLE = -1e9
"""Score of what is no choice: its probability is 0, and so is what it adds to a divergence."""


class SoftLabels(ABC):
    """What a task's answers are, and what parts a student's from a teacher's. Abstract: see below."""

    has_rows = True
    """Whether each sequence has one answer, and filling none that counts."""

    def __init__(self, base: TaskObjective[Any], temperature: float):
        self.base: Any = base
        self.temperature = temperature

    def answers(self, model: nn.Module, batch: Batch) -> Tensor:
        return self.base.outputs(model, batch)

    def hard(self, found: Tensor, batch: Batch) -> Tensor:
        """Sum the task's own loss over the rows that have labels."""
        if IS_LABELLED not in batch:
            return self.base.loss(found, batch)
        chosen, labels = batch[IS_LABELLED] > 0, batch["labels"]
        blank = torch.nan if labels.is_floating_point() else IGNORE
        labels = keep_or_blank(labels, chosen, blank)
        return self.base.loss(keep_or_blank(found, chosen), batch | {"labels": labels})

    @abstractmethod
    def soft(self, found: Tensor, right: Tensor, batch: Batch) -> Tensor:
        """Sum over all rows, or words, what parts the student's answers from the teacher's."""

    def count(self, batch: Batch) -> Tensor:
        """Count the targets of `soft`."""
        return self.base.targets(batch)[self.base.term]

    def count_labelled(self, batch: Batch) -> Tensor:
        """Count the targets of `hard`."""
        return batch[IS_LABELLED].sum() if IS_LABELLED in batch else self.count(batch)


class SoftLabel(SoftLabels):
    """One of several labels or texts: answers (S, L) or (S, K)."""

    def soft(self, found: Tensor, right: Tensor, batch: Batch) -> Tensor:
        return divergence(found, right, self.temperature)


class SoftSets(SoftLabels):
    """Any number of labels: answers (S, L), each of which is a distribution over yes and no."""

    def soft(self, found: Tensor, right: Tensor, batch: Batch) -> Tensor:
        # their mean, as in the task's own loss
        own, theirs = (torch.stack((scores, torch.zeros_like(scores)), dim=-1) for scores in (found, right))
        return divergence(own, theirs, self.temperature) / found.shape[1]


class SoftNumber(SoftLabels):
    """A number: answers (S, 1), which have no temperature."""

    def soft(self, found: Tensor, right: Tensor, batch: Batch) -> Tensor:
        return F.mse_loss(at_least_float32(found), at_least_float32(right), reduction="sum")


class SoftTags(SoftLabels):
    """A label for every word: answers (N, L), of which those at the words' first tokens count."""

    has_rows = False

    def hard(self, found: Tensor, batch: Batch) -> Tensor:
        # words without labels are marked as no targets
        return self.base.loss(found, batch)

    def soft(self, found: Tensor, right: Tensor, batch: Batch) -> Tensor:
        is_word = batch["words"][0] > NO_WORD
        return divergence(keep_or_blank(found, is_word), keep_or_blank(right, is_word), self.temperature)

    def count(self, batch: Batch) -> Tensor:
        return (batch["words"] != NO_WORD).sum()

    def count_labelled(self, batch: Batch) -> Tensor:
        return self.base.targets(batch)[self.base.term]


class SoftSpans(SoftLabels):
    """The first and the last token of an answer: answers (S, T, 2)."""

    def soft(self, found: Tensor, right: Tensor, batch: Batch) -> Tensor:
        # the mean of start and end
        return divergence(found.transpose(1, 2), right.transpose(1, 2), self.temperature) / 2


class SoftRanks(SoftLabels):
    """Vectors of texts, (S, C), whose cosines say which belong together; C may differ."""

    has_rows = False

    def soft(self, found: Tensor, right: Tensor, batch: Batch) -> Tensor:
        own, theirs = (self.base.logits_and_targets(vectors, batch)[0] for vectors in (found, right))
        return divergence(own, theirs, self.temperature)


class SoftTokens(SoftLabels):
    """A text: answers are the logits of each of the target's tokens (Kim and Rush, 2016, section 3.1)."""

    has_rows = False

    def answers(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(**without_targets(batch, "labels", INDEX)).logits[0]

    def hard(self, found: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(at_least_float32(found), self.goals(batch), reduction="sum")

    def soft(self, found: Tensor, right: Tensor, batch: Batch) -> Tensor:
        is_target = self.goals(batch) != IGNORE
        return divergence(keep_or_blank(found, is_target), keep_or_blank(right, is_target), self.temperature)

    def goals(self, batch: Batch) -> Tensor:
        """Return the tokens that answers are for, (N,)."""
        labels = batch["labels"][0]
        return labels[batch[POSITIONS]] if POSITIONS in batch else labels


SOFT: dict[str, type[SoftLabels]] = {
    "classification": SoftLabel,
    "multi_label": SoftSets,
    "regression": SoftNumber,
    "tagging": SoftTags,
    "question_answering": SoftSpans,
    "multiple_choice": SoftLabel,
    "ranking": SoftRanks,
    "generation": SoftTokens,
}
"""The kind of a task -> what it learns from a teacher."""


class TaskDistillation(Objective):
    """Learn a task from labels and from a fine-tuned teacher.

    Terms are `soft`, and the task's own if labels count.

    Args:
        labels: What the task's answers are, and what it learns without a teacher.
        teacher: Has the same head; it is frozen here.
        student: Tells whether segments are told apart.
        soft_weight: What the teacher's answers count.
        hard_weight: What labels count.
        device: Where the teacher reads.
        precision: Precision of its products, as a recipe says it.
    """

    def __init__(
        self,
        labels: SoftLabels,
        teacher: TercetPreTrainedModel,
        student: TercetPreTrainedModel,
        *,
        soft_weight: float,
        hard_weight: float,
        device: torch.device,
        precision: str = "auto",
    ):
        self.labels = labels
        self.base: TaskObjective[Any] = labels.base
        self.reads_whole_step = self.base.reads_whole_step
        self.teacher = moved(teacher.eval().requires_grad_(False), device)
        self.unread_by_student = unread_by(student)
        self.unread_by_teacher = unread_by(teacher)
        self.device = device
        self.precision = choose_precision(precision, device)
        own = {self.base.term: hard_weight} if hard_weight else {}
        self.weights = own | {"soft": soft_weight}

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        # where some rows have no labels, the batch says which have (S,)
        batch = self.base.collate(examples, seed)
        if has_field(examples, IS_LABELLED):
            batch[IS_LABELLED] = torch.from_numpy(gather(examples, IS_LABELLED).values)
        return batch

    def predicted(self, batch: Batch) -> Tensor | None:
        return self.base.predicted(batch)

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        return {self.base.term: self.labels.count_labelled(batch), "soft": self.labels.count(batch)}

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        found = self.labels.answers(model, without_targets(batch, *self.unread_by_student))
        own, right = found, self.ask_teacher(batch)
        if self.labels.has_rows:
            own, right = (keep_or_blank(each, has_example(batch)) for each in (own, right))
        losses = {"soft": self.labels.soft(own, right, batch)}
        if self.base.term in self.weights:
            losses[self.base.term] = self.labels.hard(found, batch)
        return losses

    def ask_teacher(self, batch: Batch) -> Tensor:
        """Let the teacher answer, in inference mode."""
        with torch.inference_mode(), products_in(self.precision, self.device):
            answers = self.labels.answers(self.teacher, without_targets(batch, *self.unread_by_teacher))
        return constant(answers)


def unread_by(model: TercetPreTrainedModel) -> tuple[str, ...]:
    """Name what a batch may hold that a model does not read."""
    has_types = getattr(model.config, "type_vocab_size", 0) > 1
    return (IS_LABELLED,) if has_types else (IS_LABELLED, "token_type_ids")


def divergence(found: Tensor, right: Tensor, temperature: float) -> Tensor:
    """Sum the Kullback-Leibler divergences of distributions over the last dimension, times T squared.

    Scores of minus infinity are no choices, for both.
    """
    own, theirs = (
        (at_least_float32(scores) / temperature).masked_fill(right == -torch.inf, IMPOSSIBLE).log_softmax(-1)
        for scores in (found, right)
    )
    return temperature**2 * F.kl_div(own, theirs, log_target=True, reduction="sum")
