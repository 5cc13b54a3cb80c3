"""Learning to answer: the next token, in the assistant's turns only; and answers that a model writes.

Legend: S dialogues, n targets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..objectives.streams import one_stream
from ..objectives.task_objectives import TaskObjective
from ..objectives.token_objective import without_targets
from ..training.examples import gather, has_field
from ..training.objective import IGNORE, Batch, Example

FILLER = 0
"""Id that prompts are filled with to be answered together: any will do, since it is hidden."""

WRITTEN_AT_ONCE = 32
"""Dialogues that are answered together."""


@dataclass(frozen=True)
class Answered:
    """What a model makes of a batch."""

    losses: Tensor
    """Of each dialogue's targets, summed, (S,); 0 without targets."""
    counts: Tensor
    """How many targets each dialogue has, (S,)."""
    written: list[np.ndarray]
    """Ids of the last answer of each dialogue as the model writes it; empty if it was not to."""


class ChatObjective(TaskObjective[Answered]):
    """Cross-entropy of the tokens of the assistant's turns, each from all tokens before it.

    Args:
        longest_answer: Tokens that a model writes at most.
        max_length: Tokens of a prompt with its answer at most.
        writes: Whether answers are written for dialogues with targets, too.
    """

    def __init__(self, longest_answer: int, max_length: int, writes: bool):
        super().__init__("token")
        self.longest_answer = longest_answer
        self.max_length = max_length
        self.writes = writes

    def collate(self, examples: Sequence[Example], rng: np.random.Generator) -> Batch:
        """Pack the dialogues; `labels` are their tokens where the assistant writes, and -100 elsewhere."""
        batch = one_stream(gather(examples, "input_ids"))
        for name in ("index", "prompt_length"):
            batch[name] = torch.from_numpy(gather(examples, name).values)
        if has_field(examples, "labels"):
            batch["labels"] = torch.from_numpy(gather(examples, "labels").values)[None]
        return batch

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        """Count the tokens of the assistant's turns."""
        return {self.term: is_target(batch).sum()}

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Sum the cross-entropy of the targets; nothing is written."""
        return {self.term: model(**read_by(batch), labels=batch["labels"], reduction="sum").loss}

    def outputs(self, model: nn.Module, batch: Batch) -> Answered:
        """Find the loss of each dialogue's targets, and write its last answer if that is wanted."""
        bounds = batch["cu_seq_lens_q"].long()
        losses = torch.zeros(len(bounds) - 1, device=bounds.device)
        counts = torch.zeros_like(losses)
        if "labels" in batch:
            places = is_target(batch)[0].nonzero()[:, 0]
            logits = model(**read_by(batch), logits_to_keep=places - 1).logits[0]
            each = F.cross_entropy(logits.float(), batch["labels"][0, places], reduction="none")
            rows = torch.searchsorted(bounds, places, right=True) - 1
            losses.index_add_(0, rows, each)
            counts.index_add_(0, rows, torch.ones_like(each))
        answers = self.write(model, batch) if self.writes or "labels" not in batch else []
        return Answered(losses, counts, answers)

    def loss(self, outputs: Answered, batch: Batch) -> Tensor:
        """Sum over the targets."""
        return outputs.losses.sum()

    def answers(self, outputs: Answered, batch: Batch) -> list[np.ndarray]:
        """Give loss and number of targets of each dialogue, and behind them the ids that were written."""
        numbers = torch.stack((outputs.losses, outputs.counts), dim=1).double().cpu().numpy()
        written = outputs.written or [np.zeros(0)] * len(numbers)
        return [np.concatenate(pair) for pair in zip(numbers, written, strict=True)]

    def write(self, model: nn.Module, batch: Batch) -> list[np.ndarray]:
        """Write the last answer of each dialogue, greedily, without its special end."""
        edges = batch["cu_seq_lens_q"].tolist()[:-1]
        lengths = batch["prompt_length"].tolist()
        prompts = [
            batch["input_ids"][0, edge : edge + length] for edge, length in zip(edges, lengths, strict=True)
        ]
        written: list[np.ndarray] = []
        for first in range(0, len(prompts), WRITTEN_AT_ONCE):
            group = prompts[first : first + WRITTEN_AT_ONCE]
            longest = max(map(len, group))
            ids = torch.stack([F.pad(own, (longest - len(own), 0), value=FILLER) for own in group])
            mask = torch.stack([F.pad(torch.ones_like(own), (longest - len(own), 0)) for own in group])
            with torch.inference_mode():
                found = cast(Any, model).generate(
                    input_ids=ids,
                    attention_mask=mask,
                    max_new_tokens=min(self.longest_answer, self.max_length - longest),
                    do_sample=False,
                    pad_token_id=FILLER,
                )
            written += list(found[:, longest:].cpu().numpy())
        return written


def is_target(batch: Batch) -> Tensor:
    """Say which tokens are targets, (1, N): the first one of a dialogue, which nothing precedes, never is."""
    return (batch["labels"] != IGNORE) & (batch["position_ids"] > 0)


def read_by(batch: Batch) -> Batch:
    """Leave what the model reads."""
    return without_targets(batch, "index", "prompt_length", "labels")
