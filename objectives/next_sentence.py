"""Masked language modeling with next-sentence prediction (BERT; Devlin et al., 2019, section 3.1).

    [CLS] the man went to the store [SEP] he bought a gallon of milk [SEP]      0: B is what follows A
    [CLS] the man went to the store [SEP] penguins are flightless birds [SEP]   1: B is from another document

`sentence_pairs.py` draws the pairs.

Legend: S packed sequences (pairs) of a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ..modeling import TercetEncoderForPreTraining
from ..training.examples import gather
from ..training.objective import IGNORE, Batch, Example, Objective
from .base_recipe import Corpus, FullSequence, Share, single_text
from .masked_language_modeling import DynamicMasking, MaskedLanguageModeling, MaskingRecipe
from .sentence_pairs import NextSentencePairs
from .token_objective import target_positions, token_scores, without_targets


class MaskedLanguageModelingWithNextSentence(Objective):
    """Predict masked tokens, and whether B follows A; the terms are `mlm` and `nsp`, of equal weight.

    Args:
        masked_language_modeling: Corrupts the pairs and gives the first term.
    """

    def __init__(self, masked_language_modeling: MaskedLanguageModeling):
        self.weights = {"mlm": 1.0, "nsp": 1.0}
        self.masked_language_modeling = masked_language_modeling

    def collate(self, examples: Sequence[Example], rng: np.random.Generator) -> Batch:
        """Pack and corrupt the pairs; `next_sentence_label` is (S,)."""
        batch = self.masked_language_modeling.collate(examples, rng)
        batch["next_sentence_label"] = torch.from_numpy(gather(examples, "next_sentence_label").values)
        return batch

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        """Count the chosen tokens, and the pairs."""
        pairs = (batch["next_sentence_label"] != IGNORE).sum()
        return self.masked_language_modeling.targets(batch) | {"nsp": pairs}

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Sum the cross-entropy of the chosen tokens, and of the pairs."""
        output = model(**batch, reduction="sum")
        return {"mlm": output.masked_lm_loss, "nsp": output.next_sentence_loss}

    def scores(self, model: nn.Module, batch: Batch) -> dict[str, dict[str, Tensor]]:
        """Score the chosen tokens, computing no other token's logits, and the pairs."""
        labels, pair_labels = batch["labels"], batch["next_sentence_label"]
        positions = target_positions(labels, IGNORE)
        inputs = without_targets(batch, "labels", "next_sentence_label")
        output = model(**inputs, logits_to_keep=positions)
        return {
            "mlm": token_scores(output.prediction_logits[0], labels[0, positions]),
            "nsp": token_scores(output.seq_relationship_logits, pair_labels),
        }


@dataclass(frozen=True)
class NextSentenceRecipe(MaskingRecipe):
    """Predict masked tokens, and whether the second part of a pair follows the first (BERT)."""

    RENAMED = {**MaskingRecipe.RENAMED, "short_rate": "short_sequence_probability"}
    model_class = TercetEncoderForPreTraining

    kind: Literal["masked_language_modeling_with_next_sentence"]
    """Which objective this is."""
    short_sequence_probability: Share = 0.1
    """Share of the pairs that aim at a shorter length than the sequence's."""

    def build(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        sequence_length: int,
        seed: int = 0,
        decoder_start_id: int | None = None,
    ) -> MaskedLanguageModelingWithNextSentence:
        """Build the objective."""
        masking = DynamicMasking(self.corruption(tokenizer))
        return MaskedLanguageModelingWithNextSentence(MaskedLanguageModeling(masking))

    def examples(
        self,
        corpus: Corpus,
        tokenizer: PreTrainedTokenizerBase,
        *,
        sequence_length: int,
        seed: int = 0,
        isolate_documents: bool = True,
    ) -> NextSentencePairs:
        """Draw pairs anew for every epoch: each part lies in one document."""
        text = single_text(corpus, self.kind)
        return NextSentencePairs(text, tokenizer, sequence_length, seed, self.short_sequence_probability)

    def full_sequence(self, sequence_length: int) -> FullSequence:
        """Mask a share of both parts: [CLS] and two [SEP] are never targets."""
        return FullSequence(sequence_length, 0, self.mlm_probability * (sequence_length - 3), pairs=1)
