"""Models that read a text and say something about it: about the whole, each token, a span, or choices.

Encoder and decoder do so alike, each with the defaults of its configuration. Sequence-to-sequence models read
twice, and have a file of their own.

Shapes: B batch, T positions, S sequences, L labels, K choices. Packed input is (1, N) instead of (B, T).
"""

from typing import Any

from torch import Tensor
from transformers.modeling_outputs import (
    BaseModelOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutputWithPast,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from .classification import SequenceHead, TokenHead, classification_loss, count_labels, span_loss
from .configuration_tercet import TercetConfig
from .cross_entropy import logits_loss, take_loss_arguments
from .pooling import Sequences, find_sequences
from .pretrained_tercet import TercetPreTrainedModel
from .stack import TercetStack, require_tokens


class TercetReader(TercetPreTrainedModel):
    """A stack of blocks that reads for a task. Abstract: each task adds its head, each member its stack."""

    def __init__(self, config: TercetConfig, model: TercetStack):
        super().__init__(config)
        self.model = model

    def read(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        **kwargs: Any,
    ) -> tuple[BaseModelOutput, Sequences]:
        """Read a batch, and find the sequences in it; a decoder makes no cache unless it is asked to."""
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **{"use_cache": False} | kwargs,
        )
        tokens, bounds = require_tokens(input_ids, inputs_embeds), kwargs.get("cu_seq_lens_q")
        pad = self.config.pad_token_id
        return outputs, find_sequences(tokens, attention_mask, position_ids, bounds, pad)


class TercetForSequenceClassification(TercetReader):
    """Labels of whole sequences. Abstract."""

    def __init__(self, config: TercetConfig, model: TercetStack):
        super().__init__(config, model)
        self.classifier = SequenceHead(config, count_labels(config))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutputWithPast:
        """Classify sequences: logits (S, L), one row for each, padded or packed, and the loss of `labels`.

        See `TercetEncoderModel.forward` and `TercetDecoderModel.forward` for the inputs,
        `classification_loss` for the labels, and `LossArguments` for the loss.
        """
        loss_arguments = take_loss_arguments(kwargs)
        outputs, sequences = self.read(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs
        )
        logits = self.classifier(outputs.last_hidden_state, sequences)
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels, self.config, **loss_arguments)
        return SequenceClassifierOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.get("past_key_values"),
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class TercetForTokenClassification(TercetReader):
    """Labels of single tokens. Abstract."""

    def __init__(self, config: TercetConfig, model: TercetStack):
        super().__init__(config, model)
        self.classifier = TokenHead(config, count_labels(config))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """Classify tokens: logits (B, T, L), and the loss where `labels` (B, T) is not -100.

        See `TercetForSequenceClassification.forward` for the inputs, and `LossArguments` for the loss.
        """
        loss_arguments = take_loss_arguments(kwargs)
        outputs, _ = self.read(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs
        )
        logits = self.classifier(outputs.last_hidden_state)
        loss = None if labels is None else logits_loss(logits, labels, **loss_arguments)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class TercetForQuestionAnswering(TercetReader):
    """Where an answer starts and where it ends. Abstract."""

    def __init__(self, config: TercetConfig, model: TercetStack):
        super().__init__(config, model)
        self.qa_outputs = TokenHead(config, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Score each token as the first and as the last of an answer: logits (B, T) each, and their loss.

        See `TercetForSequenceClassification.forward` for the inputs, `span_loss` for the positions (S,), and
        `LossArguments` for the loss.
        """
        loss_arguments = take_loss_arguments(kwargs)
        outputs, sequences = self.read(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs
        )
        start, end = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
        return QuestionAnsweringModelOutput(
            loss=span_loss(start, end, start_positions, end_positions, sequences, **loss_arguments),
            start_logits=start.contiguous(),
            end_logits=end.contiguous(),
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class TercetForMultipleChoice(TercetReader):
    """Which of several texts is the right one. Abstract."""

    def __init__(self, config: TercetConfig, model: TercetStack):
        super().__init__(config, model)
        self.classifier = SequenceHead(config, num_labels=1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> MultipleChoiceModelOutput:
        """Score each of K choices by itself: logits (B, K), and the loss of `labels` (B,), the right ones.

        The inputs are those of the model for each choice, (B, K, T); they cannot be packed by the user.
        """
        loss_arguments = take_loss_arguments(kwargs)
        num_choices = require_tokens(input_ids, inputs_embeds).shape[1]
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        rows = (None if each is None else each.flatten(0, 1) for each in inputs)
        outputs, sequences = self.read(*rows, **kwargs)
        logits = self.classifier(outputs.last_hidden_state, sequences).view(-1, num_choices)
        loss = None if labels is None else logits_loss(logits, labels.view(-1), **loss_arguments)
        return MultipleChoiceModelOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )
