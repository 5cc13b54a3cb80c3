"""Models with the heads of tasks: labels, a span, the correct choice, or a vector.

Encoder and decoder do so alike, each with the defaults of its configuration. Sequence-to-sequence models read
a text twice, and have a file of their own.

Shapes: B batch, T positions, S sequences, C model width, L labels, K choices. Packed input is (1, N) instead
of (B, T).
"""

from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import functional as F
from transformers.modeling_outputs import (
    BaseModelOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutputWithPast,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from ..configuration_tercet import TercetConfig, TercetDecoderConfig, TercetEncoderConfig
from ..modeling_tercet_decoder import TercetDecoderModel
from ..modeling_tercet_encoder import TercetEncoderModel
from ..outputs import Keywords, TercetSentenceEmbeddingOutput
from ..pretrained import TercetPreTrainedModel
from ..stack import TercetStack, refuse_output_positions, require_tokens
from .classification import (
    ANSWER_HEADS,
    SequenceClassificationHead,
    TokenClassificationHead,
    classification_loss,
    count_labels,
    span_loss,
)
from .losses import at_least_float32, logits_loss, take_loss_arguments, without_pads
from .pooling import POOLING, Sequences, find_sequences


class TercetTaskModel(TercetPreTrainedModel):
    """A stack of blocks with the head of a task. Abstract: each task adds its head, each member its stack."""

    stack: ClassVar[Callable[..., TercetStack]]
    """What the model is built of."""

    def __init__(self, config: TercetConfig):
        super().__init__(config)
        self.model = self.stack(config)

    def forward_base(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        **kwargs: Any,
    ) -> tuple[BaseModelOutput, Sequences]:
        """Apply the stack, and find the sequences of the batch; a decoder makes no cache unless requested."""
        refuse_output_positions(kwargs, type(self).__name__)
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


class TercetForSequenceClassification(TercetTaskModel):
    """Labels of whole sequences. Abstract."""

    def __init__(self, config: TercetConfig):
        super().__init__(config)
        self.classifier = SequenceClassificationHead(config, count_labels(config))
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
        global_attention_mask: Tensor | None = None,
        **kwargs: Keywords,
    ) -> SequenceClassifierOutputWithPast:
        """Classify sequences: logits (S, L), one row for each, padded or packed, and the loss of `labels`.

        See `TercetEncoderModel.forward` and `TercetDecoderModel.forward` for the inputs,
        `classification_loss` for the labels, and `LossArguments` for the loss.
        """
        loss_arguments = take_loss_arguments(kwargs)
        outputs, sequences = self.forward_base(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            global_attention_mask=global_attention_mask,
            **kwargs,
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


class TercetForTokenClassification(TercetTaskModel):
    """Labels of single tokens. Abstract."""

    def __init__(self, config: TercetConfig):
        super().__init__(config)
        self.classifier = TokenClassificationHead(config, count_labels(config))
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
        global_attention_mask: Tensor | None = None,
        **kwargs: Keywords,
    ) -> TokenClassifierOutput:
        """Classify tokens: logits (B, T, L), and the loss where `labels` (B, T) is not -100, pads left out.

        See `TercetForSequenceClassification.forward` for the inputs, and `LossArguments` for the loss.
        """
        loss_arguments = take_loss_arguments(kwargs)
        outputs, _ = self.forward_base(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            global_attention_mask=global_attention_mask,
            **kwargs,
        )
        logits, loss = self.classifier(outputs.last_hidden_state), None
        if labels is not None:
            loss = logits_loss(logits, without_pads(labels, attention_mask), **loss_arguments)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class TercetForQuestionAnswering(TercetTaskModel):
    """Where an answer starts and where it ends. Abstract."""

    def __init__(self, config: TercetConfig):
        super().__init__(config)
        self.qa_outputs = ANSWER_HEADS[config.answer_head](config)
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
        global_attention_mask: Tensor | None = None,
        **kwargs: Keywords,
    ) -> QuestionAnsweringModelOutput:
        """Score each token as the first and as the last of an answer: logits (B, T) each, and their loss.

        See `TercetForSequenceClassification.forward` for the inputs, `span_loss` for the positions (S,), and
        `LossArguments` for the loss.
        """
        loss_arguments = take_loss_arguments(kwargs)
        outputs, sequences = self.forward_base(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            global_attention_mask=global_attention_mask,
            **kwargs,
        )
        start, end = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
        return QuestionAnsweringModelOutput(
            loss=span_loss(start, end, start_positions, end_positions, sequences, **loss_arguments),
            start_logits=start.contiguous(),
            end_logits=end.contiguous(),
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class TercetForMultipleChoice(TercetTaskModel):
    """Which of several texts is the correct one. Abstract."""

    def __init__(self, config: TercetConfig):
        super().__init__(config)
        self.classifier = SequenceClassificationHead(config, num_labels=1)
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
        global_attention_mask: Tensor | None = None,
        **kwargs: Keywords,
    ) -> MultipleChoiceModelOutput:
        """Score each of K choices by itself: logits (B, K), and the loss of `labels` (B,), the correct ones.

        The inputs are those of the model for each choice, (B, K, T). Packed, (1, N), every sequence is a
        choice, and logits are (1, S). Nothing says there which belong together: `labels` are for (B, K) only.
        """
        loss_arguments = take_loss_arguments(kwargs)
        num_questions = require_tokens(input_ids, inputs_embeds).shape[0]
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, global_attention_mask)
        *rows, is_global = (each.flatten(0, -2) if isinstance(each, Tensor) else each for each in inputs)
        vectors = None if inputs_embeds is None else inputs_embeds.flatten(0, -3)
        outputs, sequences = self.forward_base(
            *rows, inputs_embeds=vectors, global_attention_mask=is_global, **kwargs
        )
        logits = self.classifier(outputs.last_hidden_state, sequences).view(num_questions, -1)
        loss = None if labels is None else logits_loss(logits, labels.view(-1), **loss_arguments)
        return MultipleChoiceModelOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class TercetForSentenceEmbedding(TercetTaskModel):
    """A vector for each sequence, always of length 1: dot products say what is alike. Abstract.

    The head has no weights: `config.classifier_pooling` says what stands for a sequence, by default what the
    member takes for labels; Reimers and Gurevych, 2019, section 3, recommend the `mean`.
    """

    def __init__(self, config: TercetConfig):
        super().__init__(config)
        self.pool = POOLING[config.classifier_pooling]
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Keywords,
    ) -> TercetSentenceEmbeddingOutput:
        """Embed sequences: vectors (S, C), one row for each, padded or packed.

        See `TercetForSequenceClassification.forward` for the inputs. There is no loss: vectors are learned in
        pairs of texts, and a batch does not say which belong together.
        """
        outputs, sequences = self.forward_base(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            global_attention_mask=global_attention_mask,
            **kwargs,
        )
        assert outputs.last_hidden_state is not None
        pooled = self.pool(outputs.last_hidden_state, sequences)
        return TercetSentenceEmbeddingOutput(
            sentence_embeddings=F.normalize(at_least_float32(pooled), dim=-1).to(pooled.dtype),
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class TercetEncoderForSequenceClassification(TercetForSequenceClassification):
    """The encoder and labels of whole sequences, by default read from the first token as in BERT.

    Example:
        >>> import torch
        >>> from tercet import TercetEncoderConfig, TercetEncoderForSequenceClassification
        >>> config = TercetEncoderConfig(hidden_size=32, num_attention_heads=2, num_labels=3)
        >>> model = TercetEncoderForSequenceClassification(config)
        >>> model(torch.tensor([[5, 6, 7], [8, 9, 0]])).logits.shape
        torch.Size([2, 3])
    """

    config: TercetEncoderConfig
    stack = TercetEncoderModel


class TercetEncoderForTokenClassification(TercetForTokenClassification):
    """The encoder and labels of single tokens."""

    config: TercetEncoderConfig
    stack = TercetEncoderModel


class TercetEncoderForQuestionAnswering(TercetForQuestionAnswering):
    """The encoder and where an answer starts and ends."""

    config: TercetEncoderConfig
    stack = TercetEncoderModel


class TercetEncoderForMultipleChoice(TercetForMultipleChoice):
    """The encoder and which of several texts is the correct one."""

    config: TercetEncoderConfig
    stack = TercetEncoderModel


class TercetEncoderForSentenceEmbedding(TercetForSentenceEmbedding):
    """The encoder and a vector for each text.

    Example:
        >>> import torch
        >>> from tercet import TercetEncoderConfig, TercetEncoderForSentenceEmbedding
        >>> config = TercetEncoderConfig(hidden_size=32, num_attention_heads=2, classifier_pooling="mean")
        >>> model = TercetEncoderForSentenceEmbedding(config)
        >>> model(torch.tensor([[5, 6, 7], [8, 9, 0]])).sentence_embeddings.shape
        torch.Size([2, 32])
    """

    config: TercetEncoderConfig
    stack = TercetEncoderModel


class TercetDecoderForSequenceClassification(TercetForSequenceClassification):
    """The decoder and labels of whole sequences, by default read from the last token as in GPT-2."""

    config: TercetDecoderConfig
    stack = TercetDecoderModel


class TercetDecoderForTokenClassification(TercetForTokenClassification):
    """The decoder and labels of single tokens, each known from what came before it."""

    config: TercetDecoderConfig
    stack = TercetDecoderModel


class TercetDecoderForQuestionAnswering(TercetForQuestionAnswering):
    """The decoder and where an answer starts and ends."""

    config: TercetDecoderConfig
    stack = TercetDecoderModel


class TercetDecoderForMultipleChoice(TercetForMultipleChoice):
    """The decoder and which of several texts is the correct one.

    Each is read by itself and scored at its last token (Radford et al., 2018, section 3.3).
    """

    config: TercetDecoderConfig
    stack = TercetDecoderModel


class TercetDecoderForSentenceEmbedding(TercetForSentenceEmbedding):
    """The decoder and a vector for each text, by default the state of its last token, which has read all."""

    config: TercetDecoderConfig
    stack = TercetDecoderModel
