"""Masked language modeling: mask some tokens and predict them (Devlin et al., 2019, section 3.1).

    chosen tokens, 15 %:   80 % become [MASK],   10 % a random token,   10 % stay
    my dog is hairy   ->   my dog is [MASK]  |   my dog is apple    |   my dog is hairy      target: hairy

The 20 % without [MASK] make the model doubt every token that it sees. Deviations: every token is chosen by
its own coin, as in transformers' collator, where the paper's code takes a fixed number from each sequence;
the random token is never a special one.

`masking.py` says what is chosen at once, and what stands there instead.

Legend: N packed tokens of the batch, S sequences, n chosen tokens, V ids of the tokenizer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from transformers import PreTrainedTokenizerBase

from ...data.chunks import FullSequences
from ...data.steps.examples import gather, has_field
from ...data.steps.objective import Batch, Example
from ...data.steps.streams import one_stream
from ...data.tokenizers.tokenizer import frame_ids
from ...modeling import TercetEncoderForMaskedLM
from ...training.token_objective import TokenObjective
from .masking import TOKENS, WORDS, Corruption, DynamicMasking, Spans, StaticMasking
from .recipes import (
    BaseObjectiveRecipe,
    Corpus,
    FullSequence,
    ObjectiveContext,
    Rate,
    Share,
    ZLoss,
    single_text,
)


class MaskedLanguageModeling(TokenObjective):
    """Predict the masked tokens of an encoder's input; the term is `mlm`.

    Args:
        masking: Gives the corrupted tokens and their labels: `DynamicMasking` or `StaticMasking`.
        z_loss: See `TokenObjective`.
    """

    def __init__(self, masking: DynamicMasking | StaticMasking, z_loss: float = 0.0):
        super().__init__("mlm", z_loss=z_loss)
        self.masking = masking
        self.noise = masking.noise

    def at(self, progress: float) -> "MaskedLanguageModeling":
        masking = self.masking.at(progress)
        return self if masking is self.masking else MaskedLanguageModeling(masking, self.z_loss)

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        batch = one_stream(gather(examples, "input_ids"))
        ids = batch["input_ids"][0].numpy()
        corrupted, labels = self.masking(examples, ids, seed)
        batch["input_ids"], batch["labels"] = (
            torch.from_numpy(corrupted)[None],
            torch.from_numpy(labels)[None],
        )
        if has_field(examples, "token_type_ids"):
            types = gather(examples, "token_type_ids").values
            batch["token_type_ids"] = torch.from_numpy(types.astype(np.int64))[None]
        return batch


@dataclass(frozen=True)
class SpanMaskingRecipe:
    """Mask spans of whole words of geometric lengths (SpanBERT)."""

    geometric_p: Rate = 0.2
    """Parameter of the geometric distribution: a larger one makes shorter spans."""
    max_span_length: Annotated[int, Field(ge=1)] = 10
    """Words of the longest span."""


@dataclass(frozen=True)
class MaskingRecipe(BaseObjectiveRecipe):
    """How tokens are masked. Abstract: an objective adds its model and what else is learned."""

    TERMS = {"mlm": ("hidden tokens", "fill-mask")}
    template = "pair"

    mlm_probability: Rate = 0.15
    """Share of the tokens that become targets."""
    final_mlm_probability: Rate | None = None
    """The same at the end of the run, if it changes on the way, linearly; evaluation uses it, too."""
    mask_replace_prob: Share = 0.8
    """Share of the targets that are replaced by [MASK]."""
    random_replace_prob: Share = 0.1
    """Share of the targets that are replaced by a random token; the rest stays as it is."""
    whole_word: bool = False
    """Whether all tokens of a word are masked at once."""
    span_masking: SpanMaskingRecipe | None = None
    """If set, spans of whole words are masked; `{}` has the numbers of SpanBERT."""
    z_loss: ZLoss = 0.0
    """Weight of the z-loss, the square of the logarithm of the softmax's normalizer: 1e-4 in PaLM."""

    def __post_init__(self):
        if self.whole_word and self.span_masking is not None:
            raise ValueError(
                "span_masking masks whole words in any case, but whole_word is true as well: leave out one"
            )

    @property
    def mean_mlm_probability(self) -> float:
        """Share of the tokens that become targets, on average over the run."""
        final = self.final_mlm_probability
        return self.mlm_probability if final is None else (self.mlm_probability + final) / 2

    def dynamic_masking(self, tokenizer: PreTrainedTokenizerBase) -> DynamicMasking:
        return DynamicMasking(self.corruption(tokenizer), self.final_mlm_probability)

    def corruption(self, tokenizer: PreTrainedTokenizerBase) -> Corruption:
        """Build what replaces tokens."""
        unit = WORDS if self.whole_word else TOKENS
        if (spans := self.span_masking) is not None:
            unit = Spans(spans.geometric_p, spans.max_span_length)
        shares = (self.mlm_probability, self.mask_replace_prob, self.random_replace_prob)
        return Corruption(tokenizer, *shares, unit)


@dataclass(frozen=True)
class MaskedLanguageModelingRecipe(MaskingRecipe):
    """Predict masked tokens (BERT, RoBERTa)."""

    model_class = TercetEncoderForMaskedLM

    kind: Literal["masked_language_modeling"]
    """Which objective this is."""
    masking: Literal["dynamic", "static"] = "dynamic"
    """Whether an example is masked anew whenever it is seen (`dynamic`), or always the same (`static`)."""

    def build(self, context: ObjectiveContext) -> MaskedLanguageModeling:
        if self.masking == "dynamic":
            return MaskedLanguageModeling(self.dynamic_masking(context.tokenizer), self.z_loss)
        if self.final_mlm_probability is not None:
            raise ValueError(
                f"objective.final_mlm_probability = {self.final_mlm_probability}, but static masking never "
                "changes: leave it out, or choose objective.masking=dynamic"
            )
        return MaskedLanguageModeling(
            StaticMasking(self.corruption(context.tokenizer), context.seed), self.z_loss
        )

    def examples(self, corpus: Corpus, context: ObjectiveContext) -> FullSequences:
        text = single_text(corpus, self.kind)
        return FullSequences(
            text, context.sequence_length, *frame_ids(context.tokenizer), context.isolate_documents
        )

    def full_sequence(self, sequence_length: int) -> FullSequence:
        # [CLS] and [SEP] are never targets
        return FullSequence(sequence_length, 0, self.mean_mlm_probability * (sequence_length - 2))
