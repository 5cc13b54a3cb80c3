"""Objectives: the interface between the engine and everything that can be learned.

    Examples -> Objective.collate -> Batch -> Objective.losses -> sums per term -> the loop divides

Legend: N packed tokens of the batch, S packed sequences, M packed tokens of the decoder's side, n targets.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

Example = dict[str, Any]
"""One row of a dataset: 1-D arrays (`input_ids`, `token_type_ids`, `word_starts`, ...) and numbers."""

Batch = dict[str, Any]
"""What a model is called with: tensors of several examples end to end, `(1, N)`, and where each begins."""

COMPONENT = "component"
"""In a batch of a mixture of objectives: the number of the one that it is for."""

INDEX = "index"
"""Number of an example; in a batch each sequence's, (S,), or `IGNORE`; in ranking each row's; on the CPU."""

IGNORE = -100
"""Label of a position that is not a target, as in `torch.nn.functional.cross_entropy`."""

ALL_STATES = torch.empty(0, dtype=torch.long)
"""What `predicted` returns where the head reads all states: no positions, since none need be named."""


class Objective(ABC):
    """Both ends of a batch: what the model sees, and how its answer is scored.

    An objective names its terms in `weights`; the loss of an optimizer step is

        sum over terms of  weight * (sum of the term over all targets) / (number of targets)

    Losses are therefore sums, never means: micro-batches and processes hold different numbers of targets, and
    only the loop, which sees the whole step, can divide by how many there were.
    """

    weights: dict[str, float]
    """What each term counts in the loss, by the term's name."""

    uses_all_parameters: bool = True
    """Whether each of its batches has a gradient for every parameter that it trains."""

    reads_whole_step: bool = False
    """Whether what is made of an example depends on the others of its step, so that processes collate all."""

    can_be_recorded: bool = False
    """Whether `losses` does the same work for all batches of one size, and none on the host."""

    @abstractmethod
    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        """Corrupt and pack examples into one batch.

        What is random is decided by `seed`, which is a step's, and by each example's `index`. So a process
        that collates some of a step's examples makes the same of them as one that collates all.
        """

    def collate_parts(self, examples: Sequence[Example], seed: int) -> list[Batch]:
        """Collate examples into one batch, or for a mixture of objectives into one for each of them."""
        return [self.collate(examples, seed)]

    def at(self, progress: float) -> "Objective":
        """Return the objective as it is at a point of a run, from 0 (its begin) to 1 (its end).

        Most never change. Evaluation uses the objective of the end, so that all scores of a run can be
        compared.
        """
        return self

    @abstractmethod
    def targets(self, batch: Batch) -> dict[str, Tensor]:
        """Count the targets of each term in this batch (0-dimensional tensors)."""

    def predicted(self, batch: Batch) -> Tensor | None:
        """List the positions of this batch that are read in the end, ascending; `ALL_STATES`: all of them.

        A micro-batch of a fixed size says them (see `static_shapes`). `None`: there are no fixed sizes.
        """
        return None

    @abstractmethod
    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Sum each term, in nats, over this batch's targets; differentiable."""

    @property
    def scored(self) -> Sequence[str]:
        """Name the terms that `scores` gives: all, unless some mean nothing where nothing is learned."""
        return list(self.weights)

    def scores(self, model: nn.Module, batch: Batch) -> dict[str, dict[str, Tensor]]:
        """Evaluate each term: sums over the batch's targets of `loss` in nats and of `accuracy` (0 or 1).

        Divided by the targets, `loss` is what perplexity is the exponential of: it never contains smoothing.
        Objectives whose answers are scored in another way need none.
        """
        raise NotImplementedError(f"{type(self).__name__} does not use HeldOut.source: leave it out")


def on_device(batch: Batch, device: torch.device) -> Batch:
    """Bring the tensors of a batch to a device, but for the numbers of its examples."""
    return {
        name: brought(value, device) if isinstance(value, Tensor) and name != INDEX else value
        for name, value in batch.items()
    }


def brought(value: Tensor, device: torch.device) -> Tensor:
    """Bring a tensor to a device without waiting: a GPU is waited for if memory is not pinned."""
    is_to_pin = device.type == "cuda" and value.is_cpu and not value.is_pinned()
    return (value.pin_memory() if is_to_pin else value).to(device, non_blocking=True)


def has_example(batch: Batch) -> Tensor:
    """Return which sequences of a batch have an example, and are no filling, (S,)."""
    return brought(batch[INDEX], batch["cu_seq_lens_q"].device) != IGNORE


def keep_or_blank(values: Tensor, is_kept: Tensor, blank: float = 0.0) -> Tensor:
    """Keep some rows: on a CPU they alone remain, elsewhere the others are filled with a constant.

    Elsewhere than on a CPU their number would have to be waited for.
    """
    if values.is_cpu:
        return values[is_kept]
    return values.masked_fill(~is_kept.view(-1, *[1] * (values.dim() - 1)), blank)
