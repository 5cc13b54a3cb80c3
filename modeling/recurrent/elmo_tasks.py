"""ELMo with the heads of tasks: labels of texts and of words, from a mix of all layers.

The mix is the task's own (Peters et al., 2018, section 3.2), and dropout stands behind it (section 3.3). The
paper keeps the language model as it is and lets a large model of the task read the mix; the heads here are
linear, so that the language model should learn along, unless the mix itself is of interest.

Shapes: B batch, T positions, S sequences, C width of the states, L labels.
"""

from typing import Any

from torch import Tensor
from transformers.modeling_outputs import SequenceClassifierOutput, TokenClassifierOutput
from transformers.utils.generic import can_return_tuple

from ..heads.classification import (
    SequenceClassificationHead,
    TokenClassificationHead,
    classification_loss,
    count_labels,
)
from ..heads.cross_entropy import LossArguments, logits_loss, take_loss_arguments
from ..heads.pooling import Sequences
from ..heads.targets import IGNORE, without_pads
from ..outputs import Keywords
from .configuration_elmo import TercetElmoConfig
from .elmo import TercetElmoModel, TercetElmoPreTrainedModel
from .scalar_mix import ScalarMix


class TercetElmoTaskModel(TercetElmoPreTrainedModel):
    """ELMo and the mix of its layers. Abstract: each task adds its head."""

    def __init__(self, config: TercetElmoConfig):
        super().__init__(config)
        self.model = TercetElmoModel(config)
        self.mix = ScalarMix(config.num_hidden_layers + 1)

    def forward_base(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        character_ids: Tensor | None,
        cu_seq_lens_q: Tensor | None,
        arguments: dict[str, Any],
    ) -> tuple[Tensor, Sequences, tuple[Tensor, ...] | None]:
        """Mix the layers of a batch: states (B, T, C), where sequences lie, and the layers if requested."""
        inputs = input_ids, attention_mask, position_ids, character_ids, cu_seq_lens_q
        words, characters = self.model.read(*inputs)
        layers = tuple(map(words.to_tokens, self.model.layers(words, characters)))
        recorded = layers if self.records("output_hidden_states", arguments) else None
        return self.mix(layers), self.model.find_sequences(*inputs), recorded

    def with_penalty(self, loss: Tensor, labels: Tensor, loss_arguments: LossArguments) -> Tensor:
        """Add the penalty on the weights of the mix to the loss of a task, once for all accumulated batches.

        Each of them adds the share of it that it has of the targets.
        """
        if not self.config.mix_penalty:
            return loss
        everything = loss_arguments.get("num_items_in_batch")
        share = 1.0 if everything is None else (labels != IGNORE).sum() / everything
        return loss + self.config.mix_penalty * share * self.mix.squares()


class TercetElmoForSequenceClassification(TercetElmoTaskModel):
    """ELMo and labels of whole sequences, by default read from the mean of their tokens.

    Example:
        >>> from tercet import TercetElmoConfig, TercetElmoForSequenceClassification
        >>> from tercet.modeling.recurrent.word_characters import encode_words
        >>> config = TercetElmoConfig(hidden_size=32, lstm_cell_size=48, num_labels=3)
        >>> model = TercetElmoForSequenceClassification(config)
        >>> model(**encode_words([["any", "words"], ["tercet"]])).logits.shape
        torch.Size([2, 3])
    """

    config: TercetElmoConfig

    def __init__(self, config: TercetElmoConfig):
        super().__init__(config)
        self.classifier = SequenceClassificationHead(config, count_labels(config))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        character_ids: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Keywords,
    ) -> SequenceClassifierOutput:
        """Classify sequences: logits (S, L), one row for each, padded or packed, and the loss of `labels`.

        See `TercetElmoModel.forward` for the inputs, `classification_loss` for the labels, and
        `LossArguments` for the loss, to which the penalty on the mix is added.
        """
        loss_arguments = take_loss_arguments(kwargs)
        states, sequences, layers = self.forward_base(
            input_ids, attention_mask, position_ids, character_ids, cu_seq_lens_q, kwargs
        )
        logits, loss = self.classifier(states, sequences), None
        if labels is not None:
            loss = classification_loss(logits, labels, self.config, **loss_arguments)
            loss = self.with_penalty(loss, labels, loss_arguments)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=layers)


class TercetElmoForTokenClassification(TercetElmoTaskModel):
    """ELMo and labels of single tokens, all tokens of a word alike."""

    config: TercetElmoConfig

    def __init__(self, config: TercetElmoConfig):
        super().__init__(config)
        self.classifier = TokenClassificationHead(config, count_labels(config))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        character_ids: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Keywords,
    ) -> TokenClassifierOutput:
        """Classify tokens: logits (B, T, L), and the loss where `labels` (B, T) is not -100, pads left out.

        See `TercetElmoForSequenceClassification.forward` for the inputs and the loss.
        """
        loss_arguments = take_loss_arguments(kwargs)
        states, sequences, layers = self.forward_base(
            input_ids, attention_mask, position_ids, character_ids, cu_seq_lens_q, kwargs
        )
        logits, loss = self.classifier(states), None
        if labels is not None:
            labels = without_pads(labels, sequences.numbers >= 0)
            loss = self.with_penalty(logits_loss(logits, labels, **loss_arguments), labels, loss_arguments)
        return TokenClassifierOutput(loss=loss, logits=logits, hidden_states=layers)
