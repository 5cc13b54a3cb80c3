"""Character language modeling in both directions (Akbik et al., 2018, section 2).

    forward    log p(x) = sum over t of log p(x_t | x_1 ... x_{t-1})
    backward   log p(x) = sum over t of log p(x_t | x_{t+1} ... x_T)

The paper carries the state of the LSTM from one stretch of the text to the next. Here each stretch is read
with some context instead (`data/chunks.py`), so that a step depends on its examples alone: examples are
shuffled, split into micro-batches and among processes, and a resumed run goes on exactly, as with every other
objective. That costs as many characters as the context has.

Legend: N packed characters of the batch, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ...data.chunks import StretchesInContext
from ...data.steps.examples import ExampleSource, gather
from ...data.steps.objective import Batch, Example, Objective
from ...data.steps.streams import one_stream
from ...data.tokenizers.special_tokens import required_token_id
from ...modeling import TercetCharacterLanguageModel
from ...modeling.heads.losses import IGNORE
from ...modeling.recurrent.character import reading_orders
from ...training.token_objective import token_scores, without_targets
from .recipes import BaseObjectiveRecipe, Corpus, FullSequence, ObjectiveContext, Rate, single_text

DIRECTIONS = ("forward", "backward")
"""The terms: predicting the next character, and the one before."""


class CharacterLanguageModeling(Objective):
    """Predict each character from those before it (`forward`) and from those behind it (`backward`)."""

    def __init__(self):
        self.weights = dict.fromkeys(DIRECTIONS, 1.0)

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        batch = one_stream(gather(examples, "input_ids"))
        batch["labels"] = torch.from_numpy(gather(examples, "labels").values)[None]
        return batch

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        return {name: (labels != IGNORE).sum() for name, labels in targets_of(batch).items()}

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        outputs = model(**batch, reduction="sum")
        return {name: outputs[f"{name}_loss"] for name in DIRECTIONS}

    def scores(self, model: nn.Module, batch: Batch) -> dict[str, dict[str, Tensor]]:
        outputs = model(**without_targets(batch, "labels"))
        return {
            name: token_scores(outputs[f"{name}_logits"][0, targets != IGNORE], targets[targets != IGNORE])
            for name, targets in targets_of(batch).items()
        }


def targets_of(batch: Batch) -> dict[str, Tensor]:
    """Find what each direction predicts behind each character of a packed batch (N,), or -100."""
    labels = batch["labels"][0]
    orders = reading_orders(batch["cu_seq_lens_q"], len(labels), batch["max_length_q"])
    return {name: order.stream(order.targets(labels)) for name, order in zip(DIRECTIONS, orders, strict=True)}


@dataclass(frozen=True)
class CharacterLanguageModelingRecipe(BaseObjectiveRecipe):
    """Predict the next and the previous character (contextual string embeddings)."""

    TERMS = {
        "forward": ("next characters", "text-generation"),
        "backward": ("previous characters", "other"),
    }
    model_class = TercetCharacterLanguageModel
    template = "both_ends"

    kind: Literal["character_language_modeling"]
    """Which objective this is."""
    context_share: Rate = 0.2
    """Share of a full sequence that is read as context only, half of it on either side of the targets. Each
    direction reads one of the two."""

    def build(self, context: ObjectiveContext) -> CharacterLanguageModeling:
        return CharacterLanguageModeling()

    def examples(self, corpus: Corpus, context: ObjectiveContext) -> StretchesInContext:
        end = required_token_id(context.tokenizer, "eos", self.kind)
        text = single_text(corpus, self.kind)
        return StretchesInContext(
            text,
            context.sequence_length,
            self.context(context.sequence_length),
            [end],
            context.isolate_documents,
        )

    def context(self, sequence_length: int) -> int:
        """Count the tokens of context on one side of a full sequence."""
        return max(int(self.context_share * sequence_length / 2), 1)

    def full_sequence(self, sequence_length: int) -> FullSequence:
        return FullSequence(sequence_length, 0, 2 * (sequence_length - 2 * self.context(sequence_length)))

    def count_bytes(self, corpus: Corpus, source: ExampleSource) -> dict[str, int]:
        return dict.fromkeys(DIRECTIONS, int(single_text(corpus, self.kind).document_bytes.sum()))
