"""How the labels of words are learned: each by itself, or those of a sentence together.

Shapes: N packed tokens of the batch, L labels, W words of a row.
"""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..modeling.modeling_tercet_tagger import TercetTaggerOutput
from ..objectives.streams import one_stream
from ..objectives.task_objectives import TaskObjective, inputs_of
from ..training.examples import gather, has_field
from ..training.objective import IGNORE, Batch, Example
from .encoding import NO_WORD

Outputs = TypeVar("Outputs")
"""What a model returns of a batch."""


class WordObjective(TaskObjective[Outputs]):
    """Labels of words, at the first token of each. Abstract: what the loss is, and which labels are best."""

    def __init__(self):
        super().__init__("tag")

    def collate(self, examples: Sequence[Example], rng: np.random.Generator) -> Batch:
        """Pack the examples; `labels` and `words` are streams like the ids."""
        batch = one_stream(gather(examples, "input_ids"))
        batch["index"] = torch.from_numpy(gather(examples, "index").values)
        for name in ("token_type_ids", "words", "labels"):
            if has_field(examples, name):
                batch[name] = torch.from_numpy(gather(examples, name).values)[None]
        return batch

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        """Count the words."""
        return {self.term: (batch["labels"] != IGNORE).sum()}

    @abstractmethod
    def best(self, outputs: Outputs) -> Tensor:
        """Give the best label of every token, (N,)."""

    def answers(self, outputs: Outputs, batch: Batch) -> list[np.ndarray]:
        """Give for each text the number of each word that has a token, and its best label, (W, 2)."""
        words, found = batch["words"][0].cpu().numpy(), self.best(outputs).cpu().numpy()
        edges = batch["cu_seq_lens_q"].tolist()
        return [
            np.stack((words[first:last], found[first:last]), axis=1)[words[first:last] != NO_WORD]
            for first, last in pairwise(edges)
        ]


class TaggingObjective(WordObjective[Tensor]):
    """Cross-entropy of the labels of words, at the first token of each."""

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Scores of all labels for every token, (N, L)."""
        return model(**{name: value for name, value in inputs_of(batch).items() if name != "words"}).logits[0]

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Sum over the words."""
        return F.cross_entropy(outputs.float(), batch["labels"][0], ignore_index=IGNORE, reduction="sum")

    def best(self, outputs: Tensor) -> Tensor:
        """That with the highest score."""
        return outputs.argmax(-1)


class SentenceTaggingObjective(WordObjective[TercetTaggerOutput]):
    """Likelihood of all labels of a sentence, as the tagger itself computes it."""

    def predicted(self, batch: Batch) -> None:
        """No fixed sizes: a tagger is recurrent, and has no layers to be compiled."""

    def outputs(self, model: nn.Module, batch: Batch) -> TercetTaggerOutput:
        """Loss and best labels."""
        inputs = {name: value for name, value in inputs_of(batch).items() if name != "words"}
        return model(**inputs, labels=batch.get("labels"), reduction="sum")

    def loss(self, outputs: TercetTaggerOutput, batch: Batch) -> Tensor:
        """Sum over the sentences; the engine divides it by the words."""
        assert outputs.loss is not None
        return outputs.loss

    def best(self, outputs: TercetTaggerOutput) -> Tensor:
        """Those of the best sequence."""
        assert outputs.tags is not None
        return outputs.tags[0]
