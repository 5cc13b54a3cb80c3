"""Masked language modeling joined with a judgement of sentence pairs, by two heads of one model.

    [CLS] A [SEP] B [SEP]     at masked tokens: which are they?      at [CLS]: does B follow A?

`sentence_pairs.py` draws them.

Legend: S packed sequences (pairs) of a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ...data.steps.examples import gather
from ...data.steps.objective import IGNORE, Batch, Example, Objective
from ...modeling import TercetEncoderForPreTraining
from ...training.token_objective import token_scores, without_targets
from .masked_language_modeling import MaskedLanguageModeling, MaskingRecipe
from .recipes import Corpus, FullSequence, ObjectiveContext, Share, single_text
from .sentence_pairs import NextSentencePairs, SentenceOrderPairs, SentencePairSource

PAIR_LABELS = {"nsp": 2, "sop": 2}
"""How many labels there are, by the term that judges pairs."""


class MaskedLanguageModelingWithPairs(Objective):
    """Predict masked tokens, and judge pairs; the terms are `mlm` and `pair_term`, of equal weight."""

    can_be_recorded = True

    def __init__(self, masked_language_modeling: MaskedLanguageModeling, pair_term: str):
        self.weights = {"mlm": 1.0, pair_term: 1.0}
        self.masked_language_modeling = masked_language_modeling
        self.pair_term = pair_term

    def at(self, progress: float) -> "MaskedLanguageModelingWithPairs":
        masked = self.masked_language_modeling.at(progress)
        return MaskedLanguageModelingWithPairs(masked, self.pair_term)

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        batch = self.masked_language_modeling.collate(examples, seed)
        batch["next_sentence_label"] = torch.from_numpy(gather(examples, "next_sentence_label").values)
        return batch

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        pairs = (batch["next_sentence_label"] != IGNORE).sum()
        return self.masked_language_modeling.targets(batch) | {self.pair_term: pairs}

    def predicted(self, batch: Batch) -> Tensor:
        return self.masked_language_modeling.predicted(batch)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        output = model(**batch, **self.masked_language_modeling.loss_arguments)
        return {"mlm": output.masked_lm_loss, self.pair_term: output.next_sentence_loss}

    def scores(self, model: nn.Module, batch: Batch) -> dict[str, dict[str, Tensor]]:
        positions, labels = self.masked_language_modeling.output_positions(batch)
        inputs = without_targets(batch, "labels", "next_sentence_label")
        output = model(**inputs, logits_to_keep=positions)
        return {
            "mlm": token_scores(output.prediction_logits[0], labels),
            self.pair_term: token_scores(output.seq_relationship_logits, batch["next_sentence_label"]),
        }


@dataclass(frozen=True)
class MaskedPairsRecipe(MaskingRecipe):
    """Predict masked tokens, and judge pairs. Abstract: an objective says which pairs."""

    model_class = TercetEncoderForPreTraining
    pair_term: ClassVar[str]
    """What the judgement is called in logs."""
    pairs: ClassVar[type[SentencePairSource]]
    """What draws the pairs."""

    short_sequence_probability: Share = 0.1
    """Share of the pairs that aim at a shorter length than the sequence's."""

    def build(self, context: ObjectiveContext) -> MaskedLanguageModelingWithPairs:
        masked = MaskedLanguageModeling(self.dynamic_masking(context.tokenizer), self.z_loss)
        return MaskedLanguageModelingWithPairs(masked, self.pair_term)

    def examples(self, corpus: Corpus, context: ObjectiveContext) -> SentencePairSource:
        text, length = single_text(corpus, self.kind), context.sequence_length
        return self.pairs(text, context.tokenizer, length, context.seed, self.short_sequence_probability)

    def full_sequence(self, sequence_length: int) -> FullSequence:
        # [CLS] and two [SEP] are never targets
        return FullSequence(sequence_length, 0, self.mean_mlm_probability * (sequence_length - 3), pairs=1)


@dataclass(frozen=True)
class NextSentenceRecipe(MaskedPairsRecipe):
    """Predict masked tokens, and whether the second part of a pair follows the first (BERT)."""

    TERMS = {**MaskingRecipe.TERMS, "nsp": ("next sentences", "text-classification")}
    pair_term = "nsp"
    pairs = NextSentencePairs

    kind: Literal["masked_language_modeling_with_next_sentence"]
    """Which objective this is."""


@dataclass(frozen=True)
class SentenceOrderRecipe(MaskedPairsRecipe):
    """Predict masked tokens, and whether two consecutive parts of a text are swapped (ALBERT)."""

    TERMS = {**MaskingRecipe.TERMS, "sop": ("the order of two texts", "text-classification")}
    pair_term = "sop"
    pairs = SentenceOrderPairs

    kind: Literal["masked_language_modeling_with_sentence_order"]
    """Which objective this is."""
