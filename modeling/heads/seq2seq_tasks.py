"""The sequence-to-sequence model with the heads of tasks, for which it reads a text twice, as BART does.

The encoder reads the text, then the decoder reads it again, shifted right behind the start token, and the
labels come from the decoder's states (Lewis et al., 2020, section 3.1 for sequences, section 3.2 for tokens).
For a whole sequence BART takes the state of the last end-of-sequence token, with which its tokenizer ends
every text; here it is that of the last token, whatever that is.

Shapes: B batch, T positions, S sequences, L labels, K choices. Packed input is (1, N) instead of (B, T).
"""

from collections.abc import Callable
from typing import Any, cast

from torch import Tensor
from torch.nn import functional as F
from transformers.modeling_outputs import (
    Seq2SeqModelOutput,
    Seq2SeqQuestionAnsweringModelOutput,
    Seq2SeqSequenceClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from ..attention.masks import require_mask, tokens_of
from ..attention.packing import is_of_pairs
from ..compatibility import known_arguments
from ..configuration_tercet import TercetSeq2SeqConfig
from ..modeling_tercet_seq2seq import TercetSeq2SeqModel, TercetSeq2SeqPreTrainedModel
from ..outputs import Keywords, recordings
from ..sequences import Sequences
from .classification import ANSWER_HEADS, span_loss
from .losses import LOSS_KEYWORDS, take_loss_arguments
from .tasks import ChosenText, LabelTask, SequenceLabels, TokenLabels


class TercetSeq2SeqTaskModel(TercetSeq2SeqPreTrainedModel):
    """Encoder and decoder, which both read one text for a task. Abstract: each task adds its head."""

    build_head: Callable[[], None]

    def __init__(self, config: TercetSeq2SeqConfig):
        super().__init__(config)
        self.model = TercetSeq2SeqModel(config)
        self.build_head()
        self.post_init()

    def forward_base(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        decoder_input_ids: Tensor | None,
        decoder_attention_mask: Tensor | None,
        position_ids: Tensor | None,
        **kwargs: Any,
    ) -> tuple[Seq2SeqModelOutput, Sequences]:
        """Find the sequences that the decoder reads, and apply the model; a cache is made only if requested.

        Without `decoder_input_ids` the decoder reads the source again.
        """
        own = {"decoder_input_ids": decoder_input_ids, "decoder_attention_mask": decoder_attention_mask}
        if decoder_input_ids is None:
            own, sequences = self.repeat_source(input_ids, attention_mask, position_ids, kwargs)
        else:
            positions, cache = kwargs.get("decoder_position_ids"), kwargs.get("cache")
            sequences = self.model.find_target(
                decoder_input_ids, decoder_attention_mask, positions, kwargs, cache
            )
        arguments = {"use_cache": False} | kwargs | own | {"decoder_sequences": sequences}
        outputs = self.model(input_ids, attention_mask, position_ids=position_ids, **arguments)
        return outputs, sequences

    def texts(
        self, sequences: Sequences, input_ids: Tensor | None, decoder_input_ids: Tensor | None
    ) -> Sequences:
        """Leave out pads that ids (B, T) alone tell: the model reads them, no head takes them for text."""
        ids = input_ids if decoder_input_ids is None else decoder_input_ids
        return sequences.with_pads(ids, self.config.pad_token_id)

    def repeat_source(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        arguments: dict[str, Any],
    ) -> tuple[dict[str, Any], Sequences]:
        """Shift the source right behind the start token, for the decoder, and find its sequences."""
        start = self.config.decoder_start_token_id
        if input_ids is None or start is None:
            missing = "input_ids" if input_ids is None else "config.decoder_start_token_id"
            raise ValueError(
                f"{missing} is None: pass it, because the decoder reads the source's ids after a start "
                f"token, or pass decoder_input_ids"
            )
        require_mask(attention_mask, input_ids.shape, input_ids.shape[1], self.config.num_attention_heads)
        mask = tokens_of(attention_mask, input_ids.shape[0])
        sequences = self.model.find_target(input_ids, mask, position_ids, arguments)
        first = self.texts(sequences, input_ids, None).first
        shifted = F.pad(input_ids, (1, 0), value=start)[:, :-1]
        own = {
            "decoder_input_ids": shifted.index_put(first, input_ids.new_full((), start)),
            "decoder_attention_mask": mask,
            "decoder_position_ids": position_ids,
            "cu_seq_lens_k": arguments.get("cu_seq_lens_q"),
            "max_length_k": arguments.get("max_length_q"),
            "sequences": None if is_of_pairs(attention_mask) else sequences,
        }
        return own, sequences


class TercetSeq2SeqLabelModel(LabelTask, TercetSeq2SeqTaskModel):
    """Encoder and decoder with the head of a task that has labels. Abstract."""

    @known_arguments(*LOSS_KEYWORDS)
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        labels: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **kwargs: Keywords,
    ) -> Seq2SeqSequenceClassifierOutput:
        """Compute the logits of the task, and the loss of `labels`: see the class for their sizes.

        The inputs are those of `TercetSeq2SeqModel.forward`; by default the decoder reads the source.
        See `LossArguments` for the loss.
        """
        loss_arguments = take_loss_arguments(kwargs)
        inputs = (input_ids, attention_mask, decoder_input_ids, decoder_attention_mask, position_ids)
        ids, mask, decoder_ids, *others = map(self.as_rows, inputs)
        outputs, sequences = self.forward_base(
            ids,
            mask,
            decoder_ids,
            *others,
            global_attention_mask=self.as_rows(global_attention_mask),
            token_type_ids=self.as_rows(token_type_ids),
            **kwargs,
        )
        tokens = decoder_input_ids if input_ids is None else input_ids
        assert tokens is not None  # or nothing could have been read
        states, texts = cast(Tensor, outputs.last_hidden_state), self.texts(sequences, ids, decoder_ids)
        logits, loss = self.scores(states, texts, tokens.shape[0]), None
        if labels is not None:
            loss = self.loss(logits, self.targets(labels, sequences), loss_arguments)
        kind = Seq2SeqSequenceClassifierOutput
        return kind(loss=loss, logits=logits, **recordings(outputs, kind))


class TercetSeq2SeqForSequenceClassification(SequenceLabels, TercetSeq2SeqLabelModel):
    """Encoder, decoder, and labels of whole sequences, by default read from the last token as in BART."""

    config: TercetSeq2SeqConfig


class TercetSeq2SeqForTokenClassification(TokenLabels, TercetSeq2SeqLabelModel):
    """Encoder, decoder, and labels of single tokens, which the decoder knows from the encoder."""

    config: TercetSeq2SeqConfig


class TercetSeq2SeqForMultipleChoice(ChosenText, TercetSeq2SeqLabelModel):
    """Encoder, decoder, and which of several texts is the correct one, each scored as for a label."""

    config: TercetSeq2SeqConfig


class TercetSeq2SeqForQuestionAnswering(TercetSeq2SeqTaskModel):
    """Encoder, decoder, and where an answer starts and ends, read from the decoder's states."""

    config: TercetSeq2SeqConfig

    def build_head(self) -> None:
        self.qa_outputs = ANSWER_HEADS[self.config.answer_head](self.config)

    @known_arguments(*LOSS_KEYWORDS)
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **kwargs: Keywords,
    ) -> Seq2SeqQuestionAnsweringModelOutput:
        """Score each token as the first and as the last of an answer: logits (B, T) each, and their loss.

        The inputs are those of `TercetSeq2SeqModel.forward`; by default the decoder reads the source.
        See `span_loss` for the positions (S,), and `LossArguments` for the loss.
        """
        loss_arguments = take_loss_arguments(kwargs)
        outputs, sequences = self.forward_base(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            position_ids,
            global_attention_mask=global_attention_mask,
            token_type_ids=token_type_ids,
            **kwargs,
        )
        start, end = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
        texts = self.texts(sequences, input_ids, decoder_input_ids)
        return Seq2SeqQuestionAnsweringModelOutput(
            loss=span_loss(start, end, start_positions, end_positions, texts, **loss_arguments),
            start_logits=start.contiguous(),
            end_logits=end.contiguous(),
            **recordings(outputs, Seq2SeqQuestionAnsweringModelOutput),
        )
