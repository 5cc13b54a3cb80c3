"""What the objectives of all tasks have in common, and those of whole texts: labels or a number for each.

Shapes: S texts of a batch, L labels.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...data.steps.examples import gather, has_field
from ...data.steps.objective import ALL_STATES, IGNORE, INDEX, Batch, Example, Objective, brought
from ...data.steps.packing import Ragged
from ...data.steps.static_shapes import POSITIONS
from ...data.steps.streams import fields_of, one_stream
from ...modeling.sequences import bounds_of

Outputs = TypeVar("Outputs")
"""What a model returns of a batch: tensors."""


class TaskObjective(Objective, Generic[Outputs]):
    """An objective of one term that also answers. Abstract: each task adds its outputs and their loss."""

    group_size = 1
    """Examples whose loss depends on each other, about: they are read together."""

    def __init__(self, term: str):
        self.term = term
        self.weights = {term: 1.0}

    @abstractmethod
    def outputs(self, model: nn.Module, batch: Batch) -> Outputs:
        """Let the model read a batch."""

    @abstractmethod
    def loss(self, outputs: Outputs, batch: Batch) -> Tensor:
        """Sum the loss over the targets."""

    def held_out_loss(self, outputs: Outputs, batch: Batch) -> Tensor:
        """Sum the loss without what only training adds, as smoothing and weights of labels."""
        return self.loss(outputs, batch)

    @abstractmethod
    def answers(self, outputs: Outputs, batch: Batch) -> list[np.ndarray]:
        """Return what the model says of each example, in the batch's order."""

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        return {self.term: torch.tensor(len(batch[INDEX]), device=batch[INDEX].device)}

    def predicted(self, batch: Batch) -> Tensor | None:
        # heads read all states; tasks of tokens, or of texts within an example, say which
        return ALL_STATES

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {self.term: self.loss(self.outputs(model, batch), batch)}


def group_edges(num_rows: int, group_size: int) -> np.ndarray:
    """Cut rows into groups of a size: the edges. The last one has the rest, at least half as many.

    Some groups in a row have the same edges by themselves, so that batches of whole groups change none.

    >>> group_edges(11, 4).tolist(), group_edges(9, 4).tolist()
    ([0, 4, 8, 11], [0, 4, 9])
    """
    num_groups = max((num_rows + group_size // 2) // group_size, 1)
    return np.append(np.arange(num_groups) * group_size, num_rows)


class TextObjective(TaskObjective[Tensor]):
    """Scores of a whole text, (S, L), one row for each example. Abstract: what they are learned from."""

    can_be_recorded = True

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        # labels are (S,), or (S, 1, L) where an example has several
        batch = one_stream(gather(examples, "input_ids"))
        batch |= fields_of(examples, along=["token_type_ids"], single=[INDEX])
        if has_field(examples, "labels"):
            batch["labels"] = one_entry_each(gather(examples, "labels"))
        return batch

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        # (S, L)
        return model(**inputs_of(batch)).logits

    def answers(self, outputs: Tensor, batch: Batch) -> list[np.ndarray]:
        # (L,) for each text
        return list(outputs.float().cpu().numpy())


class SingleLabelObjective(TextObjective):
    """Cross-entropy of one label.

    Args:
        weights_of_labels: Weight of each label (L,), 1 on average over the training rows; all 1 if `None`.
        label_smoothing: Probability that is spread over all labels.
    """

    def __init__(self, weights_of_labels: Tensor | None = None, label_smoothing: float = 0.0):
        super().__init__("label")
        self.can_be_recorded = weights_of_labels is None  # which are brought to the device each time
        self.weights_of_labels = weights_of_labels
        self.label_smoothing = label_smoothing

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        weights = self.weights_of_labels
        return F.cross_entropy(
            outputs.float(),
            batch["labels"],
            None if weights is None else brought(weights, outputs.device),
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )

    def held_out_loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(outputs.float(), batch["labels"], reduction="sum")


class MultiLabelObjective(TextObjective):
    """Binary cross-entropy of every label, its mean over the labels."""

    def __init__(self):
        super().__init__("labels")

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        labels = batch["labels"].reshape(outputs.shape).float()
        counts, labels = (labels != IGNORE).float(), labels.clamp(min=0)
        loss = F.binary_cross_entropy_with_logits(outputs.float(), labels, counts, reduction="sum")
        return loss / labels.shape[1]


class RegressionObjective(TextObjective):
    """Squared error."""

    def __init__(self):
        super().__init__("number")

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        labels = batch["labels"].float()
        found = outputs.float()[:, 0].masked_fill(labels.isnan(), 0)
        return F.mse_loss(found, labels.nan_to_num(), reduction="sum")


def inputs_of(batch: Batch) -> Batch:
    """Leave out what the model does not read."""
    return {name: value for name, value in batch.items() if name not in (INDEX, "labels", POSITIONS)}


def one_entry_each(labels: Ragged) -> Tensor:
    """Return labels of examples that have as many: (S,), or (S, 1, L) if there are several."""
    width = int(labels.lengths[0])
    values = torch.from_numpy(labels.values)
    return values if width == 1 else values.view(-1, 1, width)


class Texts(NamedTuple):
    """Where the texts within the sequences of a batch lie."""

    bounds: Tensor
    """Edges of what the model reads as one, (X + 1,)."""
    begins: Tensor
    """First token of each text, and N behind the last one, if there is filling, (K,)."""
    numbers: Tensor | slice
    """Which of the X each text is (K,)."""


def texts_within(batch: Batch) -> Texts:
    """Find the texts of a batch, whose positions begin anew with each of them."""
    if (positions := batch.get(POSITIONS)) is None:
        bounds = bounds_of(batch["position_ids"])
        return Texts(bounds, bounds[:-1].long(), slice(None))
    num_tokens = batch["position_ids"].shape[1]
    begins = positions.masked_fill(batch["position_ids"][0, positions] != 0, num_tokens)
    bounds = torch.cat([begins, batch["cu_seq_lens_q"]]).sort().values
    numbers = (torch.searchsorted(bounds, begins, right=True) - 1).clamp(max=len(bounds) - 2)
    return Texts(bounds.to(torch.int32), begins, numbers)


def first_tokens(batch: Batch) -> Tensor:
    """List where texts begin."""
    return (batch["position_ids"][0] == 0).nonzero()[:, 0]
