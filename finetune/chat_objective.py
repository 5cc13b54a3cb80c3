"""Learning to answer: the next token, in the assistant's turns only; and answers that a model writes.

Legend: S dialogues, n targets.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..interop.messages import quietly
from ..objectives.streams import one_stream
from ..objectives.task_objectives import TaskObjective
from ..objectives.token_objective import without_targets
from ..training.examples import gather, has_field
from ..training.objective import IGNORE, Batch, Example

FILLER = 0
"""Id that prompts are filled with to be answered together: any will do, since it is hidden."""

WRITTEN_AT_ONCE = 32
"""Dialogues that are answered together."""

PROMPT = "prompt"
"""The field of what is read before the last answer, in examples whose last answer is to be written."""

PROMPT_ENDS = "prompt_ends"
"""In a batch: where the prompt of each dialogue ends, as they lie end to end (S,)."""

READING_PROMPTS = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0}
"""Generation defaults by which what fills a prompt counts like its tokens, and what has no effect."""


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
    """

    def __init__(self, longest_answer: int, max_length: int):
        super().__init__("token")
        self.longest_answer = longest_answer
        self.max_length = max_length

    def collate(self, examples: Sequence[Example], rng: np.random.Generator) -> Batch:
        """Pack the dialogues; `labels` are their tokens where the assistant writes, and -100 elsewhere."""
        batch = one_stream(gather(examples, "input_ids"))
        batch["index"] = torch.from_numpy(gather(examples, "index").values)
        if has_field(examples, PROMPT):
            prompts = gather(examples, PROMPT)
            batch |= {
                PROMPT: torch.from_numpy(prompts.values),
                PROMPT_ENDS: torch.from_numpy(prompts.edges[1:]),
            }
        if has_field(examples, "labels"):
            batch["labels"] = torch.from_numpy(gather(examples, "labels").values)[None]
        return batch

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        """Count the tokens of the assistant's turns."""
        return {self.term: is_target(batch).sum()}

    def predicted(self, batch: Batch) -> Tensor:
        """List the positions before the targets."""
        return is_target(batch)[0].nonzero()[:, 0] - 1

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
        answers = self.write(model, batch) if PROMPT in batch else []
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
        """Write the last answer of each dialogue, greedily and else by the model's generation defaults.

        What is written does not depend on what is written beside it: dialogues are answered together if they
        have the same room and, where the defaults read what fills a prompt, the same length.
        """
        prompts = batch[PROMPT].tensor_split(batch[PROMPT_ENDS].cpu()[:-1])
        written: list[np.ndarray] = [np.empty(0, dtype=np.int64)] * len(prompts)
        together: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for index, prompt in enumerate(prompts):
            room = min(self.longest_answer, self.max_length - len(prompt))
            together[room, len(prompt) if reads_prompts(model) else 0].append(index)
        for (room, _), indices in together.items():
            for first in range(0, len(indices), WRITTEN_AT_ONCE) if room > 0 else ():
                chosen = indices[first : first + WRITTEN_AT_ONCE]
                found = answer(model, [prompts[index] for index in chosen], room)
                for index, ids in zip(chosen, found, strict=True):
                    written[index] = ids
        return written


def reads_prompts(model: nn.Module) -> bool:
    """Tell whether what a model writes depends on which tokens its prompt has been filled with."""
    defaults = cast(Any, model).generation_config
    return any(getattr(defaults, name) not in (None, idle) for name, idle in READING_PROMPTS.items())


@torch.inference_mode()
def answer(model: nn.Module, prompts: Sequence[Tensor], room: int) -> list[np.ndarray]:
    """Write what follows prompts: up to the first token that ends a text, or as much as there is room."""
    longest, generator = max(map(len, prompts)), cast(Any, model)
    ids = torch.stack([F.pad(own, (longest - len(own), 0), value=FILLER) for own in prompts])
    mask = torch.stack([F.pad(torch.ones_like(own), (longest - len(own), 0)) for own in prompts])
    with quietly():  # defaults of drawing have no effect here, and are told of
        found = generator.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=room, do_sample=False, pad_token_id=FILLER
        )
    known = generator.generation_config.eos_token_id
    ends = np.atleast_1d([] if known is None else known)
    return [up_to_end(row, ends) for row in found[:, longest:].cpu().numpy()]


def up_to_end(ids: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Leave out what stands behind the first end of a text, with which `generate` fills an answer.

    >>> up_to_end(np.array([5, 6, 2, 0, 0]), np.array([2, 3])).tolist()
    [5, 6, 2]
    """
    places = np.flatnonzero(np.isin(ids, ends))
    return ids[: places[0] + 1] if len(places) else ids


def is_target(batch: Batch) -> Tensor:
    """Say which tokens are targets, (1, N): the first one of a dialogue, which nothing precedes, never is."""
    return (batch["labels"] != IGNORE) & (batch["position_ids"] > 0)


def read_by(batch: Batch) -> Batch:
    """Leave what the model reads."""
    return without_targets(batch, "index", PROMPT, PROMPT_ENDS, "labels")
