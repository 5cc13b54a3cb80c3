"""Causal language modeling: predict every token from those before it (Radford et al., 2019, section 2).

    log p(x) = sum over t of log p(x_t | x_1 ... x_{t-1})

Legend: N packed tokens of the batch, n targets.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ..training.examples import gather
from ..training.objective import Batch, Example
from .streams import one_stream
from .token_objective import Places, TokenObjective


class CausalLanguageModeling(TokenObjective):
    """Predict the next token of a decoder's input; the term is `clm`.

    The labels are the input itself: the model shifts them, and the first token of a sequence, which nothing
    precedes, is no target.
    """

    def __init__(self) -> None:
        super().__init__("clm")

    def collate(self, examples: Sequence[Example], rng: np.random.Generator) -> Batch:
        """Pack the examples; nothing is random."""
        batch = one_stream(gather(examples, "input_ids"))
        batch["labels"] = batch["input_ids"].clone()
        return batch

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        """Count the tokens that follow another one of their sequence."""
        return {"clm": (batch["position_ids"] > 0).count_nonzero()}

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Sum the cross-entropy of the next tokens."""
        return {"clm": model(**batch, reduction="sum").loss}

    def places(self, batch: Batch) -> Places:
        """Find the tokens that follow another one, which predicts them."""
        positions = torch.nonzero(batch["position_ids"][0] > 0).squeeze(1)
        return Places(positions - 1, batch["labels"][0, positions])
