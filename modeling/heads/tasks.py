"""The heads of tasks: labels, a span, the correct choice, or a vector; and how a stack of blocks has one.

A task says which head it adds to a model, what the head makes of a text's states, and how labels are learned.
A member says how it reads a text. A model is one of each, as TercetEncoderForTokenClassification is of
`TokenLabels` and `TercetLabelModel`. Sequence-to-sequence models read a text twice: `heads/seq2seq_tasks.py`.

Shapes: B batch, T positions, S sequences, C model width, L labels, K choices. Packed input is (1, N) instead
of (B, T).
"""

from collections.abc import Callable
from typing import Any, ClassVar, cast

import torch
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

from ..attention.packing import Masks
from ..compatibility import is_tracing, known_arguments
from ..configuration_tercet import TercetConfig
from ..outputs import Keywords, LabelOutput, TercetSentenceEmbeddingOutput, recordings
from ..pretrained import NeuralPreTrainedModel, TercetPreTrainedModel
from ..sequences import PackedStream, Sequences, require_tokens
from ..stack import TercetStack, refuse_output_positions
from .classification import (
    ANSWER_HEADS,
    POOLING,
    SequenceClassificationHead,
    TokenClassificationHead,
    classification_loss,
    count_labels,
    span_loss,
)
from .losses import (
    LOSS_KEYWORDS,
    LossArguments,
    at_least_float32,
    logits_loss,
    take_loss_arguments,
    without_pads,
)


class LabelTask(NeuralPreTrainedModel):
    """What a task with `labels` adds to a model, whatever reads the texts. Abstract."""

    output: ClassVar[type[LabelOutput]]
    """What a stack of blocks with this head returns."""

    def build_head(self) -> None:
        raise NotImplementedError

    def as_rows(self, given: Any, num_dims: int = 2) -> Any:
        """Return an input in `num_dims` dimensions, where a row of it may hold several texts."""
        return given

    def scores(self, states: Tensor, sequences: Sequences, num_rows: int) -> Tensor:
        """Compute the logits of states (B, T, C), for an input that had `num_rows`."""
        raise NotImplementedError

    def targets(self, labels: Tensor, sequences: Sequences) -> Tensor:
        """Return the labels that are learned of those that are given."""
        return labels

    def loss(self, logits: Tensor, targets: Tensor, loss_arguments: LossArguments) -> Tensor:
        """Compute the loss of targets under logits."""
        raise NotImplementedError


class SequenceLabels(LabelTask):
    """Labels of whole sequences: logits (S, L), one row for each, padded or packed. Abstract.

    See `classification_loss` for the labels.
    """

    output = SequenceClassifierOutputWithPast
    pools = True

    def build_head(self) -> None:
        self.classifier = SequenceClassificationHead(self.config, count_labels(self.config))

    def scores(self, states: Tensor, sequences: Sequences, num_rows: int) -> Tensor:
        return self.classifier(states, sequences)

    def loss(self, logits: Tensor, targets: Tensor, loss_arguments: LossArguments) -> Tensor:
        return classification_loss(logits, targets, self.config, **loss_arguments)


class TokenLabels(LabelTask):
    """Labels of single tokens: logits (B, T, L), and the loss where `labels` (B, T) is not -100, pads left
    out. Abstract.
    """

    output = TokenClassifierOutput

    def build_head(self) -> None:
        self.classifier = TokenClassificationHead(self.config, count_labels(self.config))

    def scores(self, states: Tensor, sequences: Sequences, num_rows: int) -> Tensor:
        return self.classifier(states)

    def targets(self, labels: Tensor, sequences: Sequences) -> Tensor:
        return without_pads(labels, sequences)

    def loss(self, logits: Tensor, targets: Tensor, loss_arguments: LossArguments) -> Tensor:
        return logits_loss(logits, targets, **loss_arguments)


class ChosenText(LabelTask):
    """Which of K texts is the correct one: logits (B, K), and the loss of `labels` (B,). Abstract.

    The inputs are those of the model for each choice, (B, K, T), and each is scored by itself. Packed, (1,
    N), every sequence is a choice, and logits are (1, S). Nothing says there which belong together: `labels`
    are for (B, K) only.
    """

    output = MultipleChoiceModelOutput
    pools = True

    def build_head(self) -> None:
        self.classifier = SequenceClassificationHead(self.config, num_labels=1)

    def as_rows(self, given: Any, num_dims: int = 2) -> Any:
        return given.flatten(0, -num_dims) if isinstance(given, Tensor) else given

    def scores(self, states: Tensor, sequences: Sequences, num_rows: int) -> Tensor:
        return self.classifier(states, sequences).view(num_rows, -1)

    def loss(self, logits: Tensor, targets: Tensor, loss_arguments: LossArguments) -> Tensor:
        return logits_loss(logits, targets.view(-1), **loss_arguments)


class TercetTaskModel(TercetPreTrainedModel):
    """A stack of blocks with the head of a task. Abstract: each task adds its head, each member its stack."""

    stack: ClassVar[Callable[..., TercetStack]]
    """What the model is built of."""
    finds_pads: ClassVar[bool] = True
    """Whether pads are known by their id where no mask tells of them."""
    pools: ClassVar[bool] = False
    """Whether the head reads one vector of each sequence, chosen by `config.classifier_pooling`."""
    build_head: Callable[[], None]
    """Makes the layers of the task, of the head that is mixed in."""

    def __init__(self, config: TercetConfig):
        super().__init__(config)
        self.model = self.stack(config)
        self.build_head()
        self.post_init()

    def forward_base(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        **kwargs: Any,
    ) -> tuple[BaseModelOutput, Sequences, Sequences]:
        """Apply the stack, and find the sequences of the batch, and the texts that heads read in the states.

        The stack reads pads that their id alone tells, but no head does. On a CPU, in training and of packed
        texts, the last layer computes no states that the head leaves out. Caches are made if requested.
        """
        refuse_output_positions(kwargs, type(self).__name__)
        tokens, cache = require_tokens(input_ids, inputs_embeds), kwargs.get("cache")
        sequences = self.find_sequences(tokens, attention_mask, position_ids, kwargs, cache)
        texts = sequences.with_pads(input_ids, self.config.pad_token_id) if self.finds_pads else sequences
        pooling = self.config.classifier_pooling if self.pools else "mean"
        is_noted = kwargs.get("layer_states") is not None or self.records("output_hidden_states", kwargs)
        is_read_in_part = tokens.is_cpu and (self.training or kwargs.get("cu_seq_lens_q") is not None)
        if pooling != "mean" and is_read_in_part and not (is_noted or is_tracing()):
            rows, columns = getattr(texts, pooling)
            kwargs["output_positions"] = rows * tokens.shape[1] + columns
            bounds = torch.arange(len(rows) + 1, device=rows.device)
            texts = PackedStream(torch.Size((1, len(rows))), bounds)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            sequences=sequences,
            **{"use_cache": False} | kwargs,
        )
        return outputs, sequences, texts


class TercetLabelModel(LabelTask, TercetTaskModel):
    """A stack of blocks with the head of a task that has labels. Abstract."""

    @known_arguments(*LOSS_KEYWORDS)
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | Masks | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Keywords,
    ) -> LabelOutput:
        """Compute the logits of the task, and the loss of `labels`: see the class for their sizes.

        See `TercetEncoderModel.forward` and `TercetDecoderModel.forward` for the inputs, and `LossArguments`
        for the loss.
        """
        loss_arguments = take_loss_arguments(kwargs)
        num_rows = require_tokens(input_ids, inputs_embeds).shape[0]
        ids, *others = map(self.as_rows, (input_ids, attention_mask, token_type_ids, position_ids))
        outputs, sequences, texts = self.forward_base(
            ids,
            *others,
            inputs_embeds=self.as_rows(inputs_embeds, num_dims=3),
            global_attention_mask=self.as_rows(global_attention_mask),
            **kwargs,
        )
        logits, loss = self.scores(cast(Tensor, outputs.last_hidden_state), texts, num_rows), None
        if labels is not None:
            loss = self.loss(logits, self.targets(labels, sequences), loss_arguments)
        return self.output(loss=loss, logits=logits, **recordings(outputs, self.output))


class TercetForQuestionAnswering(TercetTaskModel):
    """Where an answer starts and where it ends. Abstract."""

    def build_head(self) -> None:
        self.qa_outputs = ANSWER_HEADS[self.config.answer_head](self.config)

    @known_arguments(*LOSS_KEYWORDS)
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

        See `TercetLabelModel.forward` for the inputs, `span_loss` for the positions (S,), and
        `LossArguments` for the loss.
        """
        loss_arguments = take_loss_arguments(kwargs)
        outputs, _, texts = self.forward_base(
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
            loss=span_loss(start, end, start_positions, end_positions, texts, **loss_arguments),
            start_logits=start.contiguous(),
            end_logits=end.contiguous(),
            **recordings(outputs, QuestionAnsweringModelOutput),
        )


class TercetForSentenceEmbedding(TercetTaskModel):
    """A vector for each sequence, always of length 1: dot products say what is alike. Abstract.

    The head has no weights: `config.classifier_pooling` says what stands for a sequence, by default what the
    member takes for labels; Reimers and Gurevych, 2019, section 3, recommend the `mean`.
    """

    pools = True

    def build_head(self) -> None:
        self.pool = POOLING[self.config.classifier_pooling]

    @known_arguments()
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

        See `TercetLabelModel.forward` for the inputs. There is no loss: vectors are learned in
        pairs of texts, and a batch does not say which belong together.
        """
        outputs, _, texts = self.forward_base(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            global_attention_mask=global_attention_mask,
            **kwargs,
        )
        assert outputs.last_hidden_state is not None
        pooled = self.pool(outputs.last_hidden_state, texts)
        return TercetSentenceEmbeddingOutput(
            sentence_embeddings=F.normalize(at_least_float32(pooled), dim=-1).to(pooled.dtype),
            **recordings(outputs, TercetSentenceEmbeddingOutput),
        )
