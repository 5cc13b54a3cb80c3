"""The recurrent translator: an encoder and a decoder of recurrent layers, with attention or without it.

Sutskever et al., 2014: the decoder begins where the encoder ended. Bahdanau et al., 2015: the encoder reads
in both directions, and the decoder attends to all of its states. Luong et al., 2015: the decoder's own state
attends, behind the layers. There is no input feeding, so that training needs no loop over steps
(`recurrent/decoder.py`).

Shapes: B batch, S source positions, T target positions, C model width, V vocabulary. Packed: (1, M), (1, N).
"""

# transformers types its mixin's methods for a protocol that not even its own models meet.
# pyright: reportIncompatibleMethodOverride=false

from collections.abc import Mapping
from functools import wraps
from typing import Any

from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.cache_utils import Cache
from transformers.modeling_outputs import Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.utils.generic import can_return_tuple

from ..attention.masks import require_mask
from ..attention.packing import is_empty
from ..compatibility import CACHE, GENERATION_KEYWORDS, by_name, known_arguments, with_one_cache
from ..generation.decoding import refuse_prompt_chunks
from ..heads.losses import LOSS_KEYWORDS, behind_start, find_target, take_loss_arguments, without_pads
from ..outputs import Keywords, recordings
from ..pretrained import NeuralLMHeadModel, NeuralPreTrainedModel
from ..sequences import PackedStream, Sequences, find_sequences, require_pairs, require_tokens
from .configurations import TercetRecurrentSeq2SeqConfig
from .decoder import Decoded, RecurrentCache, RecurrentDecoder, Source
from .encoder import RecurrentEncoder, RecurrentEncoderOutput, embed


class TercetRecurrentSeq2SeqPreTrainedModel(NeuralPreTrainedModel):
    """What is true of the model with and without a head. Abstract."""

    config: TercetRecurrentSeq2SeqConfig
    _is_stateful = True  # transformers then takes no assistant, whose guesses a state could not forget


class TercetRecurrentSeq2SeqModel(TercetRecurrentSeq2SeqPreTrainedModel):
    """The encoder and the decoder, over one table of token vectors."""

    def __init__(self, config: TercetRecurrentSeq2SeqConfig):
        super().__init__(config)
        self.encoder = RecurrentEncoder(config)
        self.decoder = RecurrentDecoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embeddings.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.encoder.embeddings.embed_tokens = value

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
        cache: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        use_cache: bool | None = None,
        cu_seq_lens_q: Tensor | None = None,
        cu_seq_lens_k: Tensor | None = None,
        decoder_sequences: Sequences | None = None,
        **kwargs: Keywords,
    ) -> Seq2SeqModelOutput:
        """States (B, T, C) of the target's tokens (B, T), which have attended to the source (B, S).

        Arguments are those of `TercetSeq2SeqModel.forward`. Positions say where packed sequences begin, and
        nothing else. `cache` is the cache of an earlier call; `attention_mask` is the source's all
        the same. A head may have found the `decoder_sequences`.
        """
        x = embed(
            self.encoder.embeddings,
            decoder_input_ids,
            decoder_inputs_embeds,
            token_type_ids=None,
            prefix="decoder_",
        )
        cache, has_states = own_cache(cache), self.records("output_hidden_states", kwargs)
        was_read = encoder_outputs is not None
        tokens = required_state(encoder_outputs)[1] if was_read else require_tokens(input_ids, inputs_embeds)
        bounds = {"cu_seq_lens_q": cu_seq_lens_q, "cu_seq_lens_k": cu_seq_lens_k}
        told = attention_mask, position_ids if cu_seq_lens_q is None else None, cu_seq_lens_k
        sources = find_sequences(tokens, *told, names=("attention_mask", "cu_seq_lens_k"))
        if not was_read:
            read = {"sequences": sources, "output_hidden_states": has_states}
            encoder_outputs = self.encoder(input_ids, None, token_type_ids, inputs_embeds, **read)
        read, states, first = required_state(encoder_outputs)
        has_maps = self.records("output_attentions", kwargs)
        if has_maps and not self.config.has_attention:
            raise ValueError(
                "output_attentions is given, but attention_score is 'none': there are no weights"
            )
        told = decoder_attention_mask, decoder_position_ids, bounds, cache
        targets = decoder_sequences or self.find_target(x, *told)
        require_layouts(targets, sources, cache, has_maps)
        decoded = self.decoder(x, targets, Source(states, sources), first, cache)
        keeps_cache = self.config.use_cache if use_cache is None else use_cache
        return named(read, decoded, keeps_cache=keeps_cache, has_maps=has_maps, has_states=has_states)

    def find_target(
        self,
        tokens: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        arguments: Mapping[str, Any],
        cache: Cache | None = None,
    ) -> Sequences:
        """Find the sequences of a target (B, T); a mask may also be of tokens in a cache, which were read."""
        size, names = tokens.shape[:2], ("decoder_attention_mask", "cu_seq_lens_q")
        position_ids = position_ids if arguments.get("cu_seq_lens_k") is None else None
        if own_cache(cache) is not None:
            require_mask(attention_mask, size, None, None, names[0])
            attention_mask = None if attention_mask is None else attention_mask[:, -size[1] :]
            position_ids = None
        told = attention_mask, position_ids, arguments.get("cu_seq_lens_q")
        return find_sequences(tokens, *told, names=names)


class TercetRecurrentSeq2SeqForConditionalGeneration(
    TercetRecurrentSeq2SeqPreTrainedModel, NeuralLMHeadModel, GenerationMixin
):
    """Encoder, decoder, and a prediction of the target's next token."""

    config: TercetRecurrentSeq2SeqConfig
    _tied_weights_keys = {"lm_head.weight": "model.encoder.embeddings.embed_tokens.weight"}

    def __init__(self, config: TercetRecurrentSeq2SeqConfig):
        super().__init__(config)
        self.model = TercetRecurrentSeq2SeqModel(config)
        self.build_lm_head(config)
        self.post_init()

    @known_arguments(*LOSS_KEYWORDS, drops=GENERATION_KEYWORDS)
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
        cache: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Keywords,
    ) -> Seq2SeqLMOutput:
        """Predict the target: logits (B, T, V), and the loss of `labels` (B, T), each the token after its
        decoder input, pads of `decoder_attention_mask` left out.

        Without `decoder_input_ids` the decoder reads shifted labels (teacher forcing). See
        `TercetRecurrentSeq2SeqModel.forward` for the inputs, `NeuralLMHeadModel.compute_loss_and_logits` for
        what is returned when, and `LossArguments` for the loss.
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
            use_cache=use_cache,
            decoder_sequences=sequences,
            **kwargs,
        )
        loss, logits = self.compute_loss_and_logits(
            outputs.last_hidden_state, targets, logits_to_keep, loss_arguments
        )
        return Seq2SeqLMOutput(loss=loss, logits=logits, **recordings(outputs, Seq2SeqLMOutput))

    @wraps(GenerationMixin.generate)  # pyright: ignore[reportAttributeAccessIssue]
    def generate(self, *args: Any, **kwargs: Any) -> Any:
        kwargs = with_one_cache(kwargs, CACHE)
        refuse_prompt_chunks(self, *args, **kwargs)
        return super().generate(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def create_masks_for_generate(self, attention_mask: Tensor | None = None, **_: Any) -> Tensor | None:
        """Keep a mask (B, T): for a static cache transformers would make one of pairs."""
        return attention_mask

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Shift labels (B, T) right, behind the start token: the decoder's input in training."""
        return behind_start(labels, self.config)


def required_state(encoder_outputs: Any) -> tuple[RecurrentEncoderOutput, Tensor, Tensor]:
    """Return the encoder's outputs by name, all its states, and the final ones."""
    if isinstance(encoder_outputs, tuple | list):
        encoder_outputs = RecurrentEncoderOutput(*encoder_outputs)
    if encoder_outputs.get("final_state") is None:
        raise ValueError(
            "encoder_outputs have no final_state, with which the decoder begins: pass what "
            "model.get_encoder() returns"
        )
    return encoder_outputs, encoder_outputs.last_hidden_state, encoder_outputs.final_state


def own_cache(cache: Cache | None) -> RecurrentCache | None:
    """Return the cache of an earlier call; an empty one of transformers is none, as at the first step."""
    if cache is None or isinstance(cache, RecurrentCache):
        return cache
    if isinstance(cache, Cache) and is_empty(cache):
        return None
    raise ValueError(
        f"cache is a {type(cache).__name__}, but a recurrent decoder has a RecurrentCache: pass that of an "
        "earlier call, or None"
    )


def require_layouts(
    targets: Sequences, sources: Sequences, cache: RecurrentCache | None, has_maps: bool
) -> None:
    """Refuse a source and a target of different layouts, and what packed ones cannot do."""
    bounds = sources.cu_seq_lens if isinstance(sources, PackedStream) else None
    require_pairs(bounds, sources.size, targets.count if isinstance(targets, PackedStream) else None)
    if bounds is not None and (cache is not None or has_maps):
        unsuited = "output_attentions" if has_maps else "cache"
        raise ValueError(f"{unsuited} is given with packed sequences: pass a padded batch")


def named(
    read: RecurrentEncoderOutput, decoded: Decoded, *, keeps_cache: bool, has_maps: bool, has_states: bool
) -> Seq2SeqModelOutput:
    """Name what encoder and decoder have returned as transformers names it, as far as it is requested."""
    maps = None if decoded.attentions is None else (decoded.attentions,)
    return Seq2SeqModelOutput(
        last_hidden_state=decoded.states,
        decoder_hidden_states=decoded.hidden_states if has_states else None,
        cross_attentions=maps if has_maps else None,
        encoder_last_hidden_state=read.last_hidden_state,
        encoder_hidden_states=read.hidden_states if has_states else None,
        **by_name(decoded.cache if keeps_cache else None),
    )
