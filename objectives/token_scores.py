"""What evaluation says of predicted tokens, from the logits of the targets alone.

Legend: n targets, V vocabulary.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from ..training.objective import Batch


def token_scores(logits: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Sum the negative log-likelihood (nats, float32) and the hits of logits (n, V) on targets (n,)."""
    loss = F.cross_entropy(logits.float(), targets, reduction="sum")
    return {"loss": loss, "accuracy": (logits.argmax(dim=-1) == targets).sum()}


def without_targets(batch: Batch, *names: str) -> Batch:
    """Leave out what only the loss reads (`labels`, ...), so that the model computes none."""
    return {name: value for name, value in batch.items() if name not in names}


def target_positions(labels: Tensor, ignore: int) -> Tensor:
    """List where the packed `labels` (1, N) hold a target, ascending (n,)."""
    return torch.nonzero(labels[0] != ignore).squeeze(1)
