"""Causal and masked language modeling by one set of weights (GPT-BERT; Charpentier and Samuel, 2024).

    <s> my dog is hairy .           causal: every state predicts the next token, from those before it
    <s> my dog is [MASK] .          masked: the state of "is" predicts "hairy", from all tokens

Both predict the next token at the same place (section 2.1 of "GPT or BERT: why not both?"), so that a decoder
learns both with all of its weights in common. A share of every step is read causally, the rest masked; each
part's loss is a mean over its own targets, weighted by its share. The model loads as
`AutoModelForCausalLM` and as `AutoModelForMaskedLM`.

Deviation: the paper's copies on several devices learn one objective each, in proportion; here each step has
both, whatever the number of devices.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ...data.chunks import FullSequences
from ...data.steps.examples import ExampleSource
from ...modeling import TercetDecoderForCausalLM
from ...training.mixture import MixedObjective, MixedSource
from .causal_language_modeling import (
    CausalLanguageModeling,
    CausalLanguageModelingRecipe,
    bytes_of_sequences,
    causal_sequences,
)
from .masked_language_modeling import MaskingRecipe
from .masked_next_token import MaskedNextTokenPrediction, MaskedNextTokenRecipe
from .recipes import Corpus, FullSequence, ObjectiveContext, single_text


@dataclass(frozen=True)
class HybridLanguageModelingRecipe(MaskingRecipe):
    """Predict next tokens causally and masked tokens bidirectionally, with the same weights (GPT-BERT)."""

    TERMS = {**CausalLanguageModelingRecipe.TERMS, **MaskedNextTokenRecipe.TERMS}
    model_class = TercetDecoderForCausalLM
    template = "plain"

    kind: Literal["hybrid_language_modeling"]
    """Which objective this is."""
    causal_share: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """Share of the tokens, and of the loss, that is causal language modeling; the paper tries 1/16 to
    15/16."""

    @property
    def shares(self) -> tuple[float, float]:
        return self.causal_share, 1 - self.causal_share

    def build(self, context: ObjectiveContext) -> MixedObjective:
        masked = MaskedNextTokenPrediction(self.dynamic_masking(context.tokenizer), self.z_loss)
        return MixedObjective([CausalLanguageModeling(self.z_loss), masked], self.shares)

    def examples(self, corpus: Corpus, context: ObjectiveContext) -> MixedSource:
        sequences = causal_sequences(single_text(corpus, self.kind), context)
        return MixedSource([sequences, sequences], self.shares, context.seed, whole=context.is_held_out)

    def full_sequence(self, sequence_length: int) -> FullSequence:
        targets = self.causal_share + (1 - self.causal_share) * self.mean_mlm_probability
        return FullSequence(sequence_length, 0, targets * (sequence_length - 1))

    def count_bytes(self, corpus: Corpus, source: ExampleSource) -> dict[str, int]:
        assert isinstance(source, MixedSource)
        sequences = source.sources[0]
        assert isinstance(sequences, FullSequences)
        return {"clm": bytes_of_sequences(single_text(corpus, self.kind), sequences)}
