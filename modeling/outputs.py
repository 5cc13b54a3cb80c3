"""What forward passes take and return beyond what transformers' own classes describe."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from torch import Tensor
from transformers.modeling_outputs import (
    MultipleChoiceModelOutput,
    NextSentencePredictorOutput,
    SequenceClassifierOutputWithPast,
    TokenClassifierOutput,
)
from transformers.utils.generic import ModelOutput, TransformersKwargs

if TYPE_CHECKING:  # whose names overlap with arguments that stand in our signatures, which checkers refuse
    Keywords = Any
else:
    Keywords = Unpack[TransformersKwargs]
    """What a `forward` passes on to its stack, to attention kernels and to losses. By this type in a
    signature transformers knows that keywords reach the attention kernel."""


LabelOutput = (
    SequenceClassifierOutputWithPast
    | TokenClassifierOutput
    | MultipleChoiceModelOutput
    | NextSentencePredictorOutput
)
"""What a forward pass with labels returns. Libraries read the fields of outputs in such annotations."""


@dataclass
class TercetForPreTrainingOutput(ModelOutput):
    """BERT's two predictions and their losses, in the names of transformers' `BertForPreTrainingOutput`.

    Args:
        loss: Sum of the two losses that follow, of those whose labels were given.
        prediction_logits: Scores of every vocabulary entry, (B, T, V); absent in training with labels.
        seq_relationship_logits: Scores of "B follows A" (index 0) and "B is random" (index 1), (B, 2).
        hidden_states: Stream before each layer and at the end, (B, T, C) each, if requested.
        attentions: Weights of each layer, (B, H, T, T) each, if requested.
        masked_lm_loss: Cross-entropy at the masked tokens.
        next_sentence_loss: Cross-entropy of the sentence relation.
    """

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    masked_lm_loss: Tensor | None = None
    next_sentence_loss: Tensor | None = None

    @property
    def logits(self) -> Tensor | None:
        """Return `prediction_logits`, by the name that models of masked tokens alone have for them."""
        return self.prediction_logits


@dataclass
class TercetSentenceEmbeddingOutput(ModelOutput):
    """A vector for each sequence.

    Args:
        sentence_embeddings: Vectors of length 1, (S, C), one row for each sequence, padded or packed.
        hidden_states: Stream before each layer and at the end, (B, T, C) each, if requested.
        attentions: Weights of each layer, (B, H, T, T) each, if requested.
    """

    sentence_embeddings: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class TercetCharacterLanguageModelOutput(ModelOutput):
    """The predictions of both directions of a character model, and their losses.

    Args:
        loss: Sum of the two losses that follow.
        forward_loss: Cross-entropy of each character after those before it.
        backward_loss: Cross-entropy of each character before those behind it.
        forward_logits: Scores of the character that comes next, (B, T, V); absent in training with labels.
        backward_logits: Scores of the character that comes before, (B, T, V).
        last_hidden_state: States of both directions, (B, T, 2 C).
    """

    loss: Tensor | None = None
    forward_loss: Tensor | None = None
    backward_loss: Tensor | None = None
    forward_logits: Tensor | None = None
    backward_logits: Tensor | None = None
    last_hidden_state: Tensor | None = None


def recordings(outputs: ModelOutput, kind: type[ModelOutput]) -> dict[str, Any]:
    """Take what a model returned that a kind of output has, too: all but the states that a head reads."""
    return {name: value for name, value in outputs.items() if hasattr(kind, name)}
