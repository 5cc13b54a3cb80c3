"""Objectives that predict tokens of one stream: where these are, and how a model's predictions are scored.

Legend: N packed tokens of the stream that the model predicts, n targets, V vocabulary.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..data.steps.objective import IGNORE, Batch, Objective
from ..data.steps.static_shapes import POSITIONS
from ..modeling.heads.losses import LossArguments

Noise = Literal["none", "static", "dynamic"]


class OutputPositions(NamedTuple):
    """The targets of a batch."""

    positions: Tensor
    """Where in the stream the model predicts them, ascending (n,)."""
    labels: Tensor
    """The tokens to predict there (n,)."""


NUMBERS_AT_ONCE = 2**26
"""Logits that are scored at a time: they are copied in float32."""


class TokenObjective(Objective):
    """Predict tokens at some positions of a stream. Abstract: a kind makes batches, whose `labels` say which.

    A label stands where it is predicted, unless a kind says otherwise by `goals`.

    Args:
        term: What is learned, as logs call it.
        label_smoothing: Probability that the loss spreads over the vocabulary; scores never do.
        z_loss: Weight of the squares of log Z in the loss (see `LossArguments`); scores have none.
    """

    can_be_recorded = True

    noise: Noise
    """Whether examples are corrupted: never, always the same way, or anew whenever they are seen."""

    def __init__(self, term: str, label_smoothing: float = 0.0, z_loss: float = 0.0):
        self.term = term
        self.weights = {term: 1.0}
        self.label_smoothing = label_smoothing
        self.z_loss = z_loss

    @property
    def loss_arguments(self) -> LossArguments:
        """What a model has to know of the loss, beside the batch."""
        return {"reduction": "sum", "label_smoothing": self.label_smoothing, "z_loss": self.z_loss}

    def goals(self, batch: Batch) -> Tensor:
        """Return which token is predicted at each position of the stream, (N,): `IGNORE` where none is."""
        return batch["labels"][0]

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        return {self.term: (batch["labels"] != IGNORE).count_nonzero()}

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {self.term: model(**batch, **self.loss_arguments).loss}

    def output_positions(self, batch: Batch) -> OutputPositions:
        """Find the targets of a batch; if it says where it is read, some of these have no target."""
        goals, positions = self.goals(batch), batch.get(POSITIONS)
        positions = torch.nonzero(goals != IGNORE).squeeze(1) if positions is None else positions
        return OutputPositions(positions, goals[positions])

    def predicted(self, batch: Batch) -> Tensor:
        return self.output_positions(batch).positions

    def scores(self, model: nn.Module, batch: Batch) -> dict[str, dict[str, Tensor]]:
        positions, labels = self.output_positions(batch)
        return {self.term: token_scores(self.logits_at(model, batch, positions), labels)}

    def logits_at(self, model: nn.Module, batch: Batch, positions: Tensor) -> Tensor:
        """Return a model's logits at some positions of the stream that it predicts, (n, V)."""
        return model(**without_targets(batch, "labels"), logits_to_keep=positions).logits[0]


def token_scores(logits: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Sum the negative log-likelihood (nats, float32) and the hits of logits (n, V) on targets (n,)."""
    rows = max(NUMBERS_AT_ONCE // logits.shape[1], 1)
    parts = zip(logits.split(rows), targets.split(rows), strict=True)
    losses = [F.cross_entropy(part.float(), labels, reduction="sum") for part, labels in parts]
    return {"loss": torch.stack(losses).sum(), "accuracy": (logits.argmax(dim=-1) == targets).sum()}


def sample_tokens(
    logits: Tensor, numbers: Tensor, temperature: float = 1.0, kind: torch.dtype = torch.float64
) -> Tensor:
    """Sample a token (n,) from each softmax of logits (n, V), decided by numbers (n,) from [0, 1).

    A number falls into the interval of one token if the probabilities are laid end to end (inverse transform
    sampling).

    >>> probabilities = torch.tensor([[0.5, 0.2, 0.3]])
    >>> sample_tokens(probabilities.log().expand(4, -1), torch.tensor([0.0, 0.49, 0.6, 0.9]))
    tensor([0, 0, 1, 2])
    """
    scaled = logits.to(kind) if temperature == 1.0 else logits.to(kind) / temperature
    ends = scaled.softmax(dim=-1).cumsum(dim=-1)
    found = torch.searchsorted(ends, numbers.to(kind)[:, None] * ends[:, -1:], right=True).squeeze(1)
    return found.clamp(max=logits.shape[-1] - 1)


def without_targets(batch: Batch, *names: str) -> Batch:
    """Leave out what only the loss reads (`labels`, ...), so that the model computes none."""
    return {name: value for name, value in batch.items() if name not in names}
