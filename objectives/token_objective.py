"""Objectives that ask for tokens of one stream: where these are, and how a model's answers are scored.

Legend: N packed tokens of the stream that the model predicts, n targets, V vocabulary.
"""

from abc import abstractmethod
from typing import NamedTuple

from torch import Tensor, nn

from ..training.objective import Batch, Objective
from .token_scores import token_scores, without_targets


class Places(NamedTuple):
    """The targets of a batch."""

    positions: Tensor
    """Where in the stream a model's states predict them, ascending (n,)."""
    tokens: Tensor
    """What is right there (n,)."""


class TokenObjective(Objective):
    """Predict tokens at some places of a stream. Abstract: each kind says which, and how batches are made.

    Args:
        term: What is learned, as logs call it.
        label_smoothing: Probability that the loss spreads over the vocabulary; scores never do.
    """

    def __init__(self, term: str, label_smoothing: float = 0.0):
        self.term = term
        self.weights = {term: 1.0}
        self.label_smoothing = label_smoothing

    @abstractmethod
    def places(self, batch: Batch) -> Places:
        """Find the targets of a batch."""

    def scores(self, model: nn.Module, batch: Batch) -> dict[str, dict[str, Tensor]]:
        """Score the targets by the logits at their places, computing no others; nothing is smoothed."""
        positions, tokens = self.places(batch)
        logits = model(**without_targets(batch, "labels"), logits_to_keep=positions).logits
        return {self.term: token_scores(logits[0], tokens)}
