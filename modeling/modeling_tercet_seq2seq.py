"""Sequence-to-sequence: an encoder, and a decoder that reads it (Vaswani et al., 2017).

Shapes: B batch, S source positions, T target positions, C model width, V vocabulary. Packed: (1, M), (1, N).
"""

# transformers types its mixin's methods for a protocol that not even its own models meet.
# pyright: reportIncompatibleMethodOverride=false

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.utils.generic import can_return_tuple

from .attention.masks import tokens_of
from .attention.packing import select_positions
from .compatibility import CACHE, GENERATION_KEYWORDS, by_name, known_arguments
from .configuration_tercet import TercetSeq2SeqConfig
from .generation.decoding import TercetGenerativeModel, by_steps
from .heads.losses import (
    LOSS_KEYWORDS,
    behind_start,
    find_target,
    select_targets,
    take_loss_arguments,
    without_pads,
)
from .modeling_tercet_decoder import TercetDecoderModel
from .modeling_tercet_encoder import TercetEncoderModel
from .outputs import Keywords, recordings
from .pretrained import TercetPreTrainedModel
from .sequences import PackedStream, Sequences, require_tokens
from .stack import refuse_output_positions

TABLE = "embeddings.embed_tokens.weight"
"""Where a stack keeps the vectors of its tokens."""


class TercetSeq2SeqPreTrainedModel(TercetPreTrainedModel):
    """What is true of the model with and without a head. Abstract."""

    config: TercetSeq2SeqConfig
    # The two stacks record their own.
    _can_record_outputs = {}
    _tied_weights_keys: dict[str, str] = {}

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Return the ties of the parameters, chosen when the model is built.

        transformers checks `tie_word_embeddings` alone, which does not say how many tables of token vectors
        there are.
        """
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels)
        return dict(self._tied_weights_keys)

    def resize_token_embeddings(
        self,
        new_num_tokens: int | None = None,
        pad_to_multiple_of: int | None = None,
        mean_resizing: bool = True,
    ) -> nn.Embedding:
        table = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        decoder = self.get_decoder()
        if decoder.get_input_embeddings().num_embeddings != table.num_embeddings:
            decoder.resize_token_embeddings(table.num_embeddings)
            self.tie_weights()
        for stack in (self.get_encoder(), decoder):  # which may be saved by itself
            stack.config.vocab_size = table.num_embeddings
        return table


class TercetSeq2SeqModel(TercetSeq2SeqPreTrainedModel):
    """The encoder and the decoder, over one table of token vectors or two."""

    def __init__(self, config: TercetSeq2SeqConfig):
        super().__init__(config)
        self.encoder = TercetEncoderModel(config.encoder_config())
        self.decoder = TercetDecoderModel(config.decoder_config(), has_cross_attention=True)
        self._tied_weights_keys = {f"decoder.{TABLE}": f"encoder.{TABLE}"} if config.has_one_table else {}
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the source's table of token vectors, (V, C), which by default is the target's too."""
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the source's table, and the target's where the two are one."""
        self.encoder.set_input_embeddings(value)
        if self.config.has_one_table:
            self.decoder.set_input_embeddings(value)

    @known_arguments()
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
        encoder_outputs: Any = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        use_cache: bool | None = None,
        cu_seq_lens_q: Tensor | None = None,
        cu_seq_lens_k: Tensor | None = None,
        max_length_q: int | None = None,
        max_length_k: int | None = None,
        global_attention_mask: Tensor | None = None,
        sequences: Sequences | None = None,
        decoder_sequences: Sequences | None = None,
        **kwargs: Keywords,
    ) -> Seq2SeqModelOutput:
        """States (B, T, C) of the target's tokens (B, T), which read the source (B, S).

        The plain arguments are those of `TercetEncoderModel.forward` and describe the source; those with
        `decoder_` are those of `TercetDecoderModel.forward` and describe the target. `encoder_outputs` is
        the encoder's result if it has run before. Packed, both are streams in the same order:
        `cu_seq_lens_q` bounds the targets, whose queries attend, and `cu_seq_lens_k` the sources.
        """
        given = require_target(decoder_input_ids, decoder_inputs_embeds)
        refuse_output_positions(kwargs, type(self).__name__)
        kwargs = self.recordings(kwargs)
        is_in_order = isinstance(encoder_outputs, tuple | list)
        source = BaseModelOutput(*encoder_outputs) if is_in_order else encoder_outputs
        bounds = {"cu_seq_lens_q": cu_seq_lens_q, "max_length_q": max_length_q}
        bounds |= {"cu_seq_lens_k": cu_seq_lens_k, "max_length_k": max_length_k}
        tokens = require_tokens(input_ids, inputs_embeds) if source is None else source.last_hidden_state
        told = cast(Tensor, tokens), attention_mask, position_ids, bounds
        sequences = sequences or self.encoder.find_sequences(*told, side="k")
        told = given, decoder_attention_mask, decoder_position_ids, bounds, cache
        decoder_sequences = decoder_sequences or self.find_target(*told)
        if source is None:
            inputs = input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds
            own = {"global_attention_mask": global_attention_mask, "sequences": sequences}
            source = self.encoder(*inputs, **own, **kwargs)
        packed = sequences if isinstance(sequences, PackedStream) else None
        read = decoder_input_ids, decoder_attention_mask, decoder_position_ids, cache, decoder_inputs_embeds
        target = self.decoder(
            *read,
            encoder_hidden_states=source.last_hidden_state,
            encoder_attention_mask=tokens_of(attention_mask, given.shape[0]),
            use_cache=self.config.use_cache if use_cache is None else use_cache,
            cu_seq_lens_k=packed and packed.cu_seq_lens,
            max_length_k=packed and packed.max_length,
            sequences=decoder_sequences,
            **kwargs,
        )
        return joined_output(source, target)

    def find_target(self, *told: Any) -> Sequences:
        return self.decoder.find_sequences(*told, prefix="decoder_")

    def recordings(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Pass on what the whole model's configuration records: the two halves have their own."""
        recorded = {
            name: getattr(self.config, name)
            for name in ("output_attentions", "output_hidden_states")
            if arguments.get(name) is None
        }
        return arguments | recorded


class TercetSeq2SeqForConditionalGeneration(
    TercetSeq2SeqPreTrainedModel, TercetGenerativeModel, GenerationMixin
):
    """Encoder, decoder, and a prediction of the target's next token."""

    def __init__(self, config: TercetSeq2SeqConfig):
        super().__init__(config)
        self.model = TercetSeq2SeqModel(config)
        self.build_lm_head(config)
        owner = "encoder" if config.has_one_table else "decoder"
        is_tied = config.tie_word_embeddings
        self._tied_weights_keys = {"lm_head.weight": f"model.{owner}.{TABLE}"} if is_tied else {}
        self.post_init()

    @known_arguments(*LOSS_KEYWORDS, drops=GENERATION_KEYWORDS)
    @by_steps
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
        encoder_outputs: Any = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        output_positions: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **kwargs: Keywords,
    ) -> Seq2SeqLMOutput:
        """Predict the target: logits (B, T, V), and the loss of `labels` (B, T), each the token after its
        decoder input, pads of `decoder_attention_mask` left out.

        Without `decoder_input_ids` the decoder reads shifted labels (teacher forcing). With
        `output_positions` (n,) of the flattened batch, logits (1, n, V) and loss are those of these. See
        `TercetSeq2SeqModel.forward` for the inputs, `TercetLMHeadModel.compute_loss_and_logits` for what is
        returned when, and `LossArguments` for the loss.
        """
        loss_arguments, sequences, targets = take_loss_arguments(kwargs), None, None
        if labels is not None:
            use_cache = False if use_cache is None else use_cache
            read = decoder_input_ids if decoder_inputs_embeds is None else decoder_inputs_embeds
            told = decoder_attention_mask, decoder_position_ids, kwargs, cache
            sequences, decoder_attention_mask = find_target(self.model.find_target, labels, read, *told)
            if read is None:
                decoder_input_ids = behind_start(labels, self.config, sequences.is_first)
            targets = without_pads(labels, sequences)
        outputs = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            position_ids,
            decoder_position_ids,
            encoder_outputs,
            cache,
            inputs_embeds,
            decoder_inputs_embeds,
            token_type_ids,
            use_cache=use_cache,
            global_attention_mask=global_attention_mask,
            decoder_sequences=sequences,
            **kwargs,
        )
        states, asked = outputs.last_hidden_state, output_positions
        states, targets = select_positions(states, asked), select_targets(targets, asked)
        loss, logits = self.compute_loss_and_logits(
            states, targets, logits_to_keep, loss_arguments, is_selected=asked is not None
        )
        return Seq2SeqLMOutput(loss=loss, logits=logits, **recordings(outputs, Seq2SeqLMOutput))

    def decode_step(
        self,
        decoder_input_ids: Tensor,
        cache: EncoderDecoderCache,
        encoder_outputs: BaseModelOutput,
        attention_mask: Tensor | None = None,
    ) -> Seq2SeqLMOutput:
        positions = torch.full_like(decoder_input_ids, cache.get_seq_length())
        states = self.model.decoder.decode_step(
            decoder_input_ids,
            positions,
            None,
            cache,
            encoder_outputs.last_hidden_state,
            tokens_of(attention_mask, decoder_input_ids.shape[0]),
        )
        return Seq2SeqLMOutput(logits=self.compute_logits(states), **by_name(cache))

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Shift labels (B, T) right, behind the start token: the decoder's input in training."""
        return behind_start(labels, self.config)


def require_target(decoder_input_ids: Tensor | None, decoder_inputs_embeds: Tensor | None) -> Tensor:
    """Return what the decoder has to read."""
    if decoder_input_ids is None and decoder_inputs_embeds is None:
        raise ValueError(
            "decoder_input_ids is missing: pass it, pass labels to a model with a head, or use generate()"
        )
    return require_tokens(decoder_input_ids, decoder_inputs_embeds, "decoder_")


def joined_output(
    source: BaseModelOutput, target: BaseModelOutputWithPastAndCrossAttentions
) -> Seq2SeqModelOutput:
    """Name what both stacks returned as transformers names it for the whole."""
    return Seq2SeqModelOutput(
        last_hidden_state=target.last_hidden_state,
        decoder_hidden_states=target.hidden_states,
        decoder_attentions=target.attentions,
        cross_attentions=target.cross_attentions,
        encoder_last_hidden_state=source.last_hidden_state,
        encoder_hidden_states=source.hidden_states,
        encoder_attentions=source.attentions,
        **by_name(target.get(CACHE)),
    )
