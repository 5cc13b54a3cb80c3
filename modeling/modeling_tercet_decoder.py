"""The decoder: a token sees itself and what came before, and, beside an encoder, the whole source.

A decoder that is read in both directions: masked language modeling with the weights of a causal one.

A masked token is predicted where a decoder predicts it, one position before it (masked next-token prediction;
BehnamGhader et al., 2024, "LLM2Vec", section 2.1; Charpentier and Samuel, 2024, "GPT or BERT: why not both?",
section 2.1). So causal and masked language modeling train the same mapping from states to next tokens, and
differ only in what a state may attend to:

    causal   <s> my dog is            state of "is" -> hairy       attends to "<s> my dog is"
    masked   <s> my dog is [MASK] .   state of "is" -> hairy       attends to all six tokens

The logits here are aligned with the input, as users of masked language models expect: those of a masked token
stand at its own position. The first token of a sequence, which no state precedes, cannot be predicted.

Shapes: B batch, T positions, C model width, V vocabulary, S source positions, n output positions.
Packed: (1, N) and (1, M).
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import GenerationMixin
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.generation.continuous_batching import PagedAttentionCache
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    CausalLMOutputWithPast,
    MaskedLMOutput,
)
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .attention.masks import kernel_mask, refuse_mask_of_packed, require_mask
from .attention.multi_head import CrossAttention, SelfAttention
from .attention.packing import (
    Layout,
    Mask,
    Masks,
    PackedSequences,
    Padding,
    is_empty,
    is_of_pairs,
    sequence_ids,
    within,
)
from .compatibility import GENERATION_KEYWORDS, HEAD_KEYWORDS, by_name, known_arguments
from .configuration_tercet import TercetDecoderConfig
from .generation.decoding import TercetGenerativeModel, by_steps
from .heads.losses import (
    IGNORE,
    LOSS_KEYWORDS,
    next_tokens,
    predicted_tokens,
    select_targets,
    take_loss_arguments,
)
from .heads.tasks import (
    ChosenText,
    SequenceLabels,
    TercetForQuestionAnswering,
    TercetForSentenceEmbedding,
    TercetLabelModel,
    TokenLabels,
)
from .layers.block import Block
from .layers.positions import POSITIONS
from .outputs import Keywords, recordings
from .pretrained import TercetLMHeadModel
from .sequences import Sequences, require_pairs, require_tokens
from .stack import StackCall, TercetStack, kernel_arguments, refuse_global_tokens

# transformers types its mixin's methods for a protocol that not even its own models meet.
# pyright: reportIncompatibleMethodOverride=false


class TercetDecoderModel(TercetStack):
    """Embeddings, causal blocks, final norm; with `has_cross_attention`, blocks read an encoder's output.

    With `is_causal=False` the same blocks are bidirectional, as the hybrid of GPT and BERT needs.
    """

    config: TercetDecoderConfig
    _can_record_outputs = {
        "hidden_states": Block,
        "attentions": SelfAttention,
        "cross_attentions": CrossAttention,
    }

    def __init__(
        self, config: TercetDecoderConfig, *, has_cross_attention: bool = False, is_causal: bool = True
    ):
        super().__init__(config, is_causal=is_causal, has_cross_attention=has_cross_attention)

    @known_arguments(*HEAD_KEYWORDS)
    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | Masks | None = None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        use_cache: bool | None = None,
        cu_seq_lens_q: Tensor | None = None,
        cu_seq_lens_k: Tensor | None = None,
        max_length_q: int | None = None,
        max_length_k: int | None = None,
        output_positions: Tensor | None = None,
        sequences: Sequences | None = None,
        **kwargs: Keywords,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """States (B, T, C) of the new tokens (B, T), which also read the cached ones.

        The arguments are those of `TercetEncoderModel.forward`; `is_causal=False` lets tokens attend to later
        ones. With a cache, `attention_mask` is (B, past + T), and `cache` is extended in place;
        packed sequences have none. With a source there are no `output_positions`: `encoder_hidden_states` (B,
        S, C) with `encoder_attention_mask` (B, S) or of pairs, or packed (1, M, C) with `cu_seq_lens_k`.
        """
        lengths = {"cu_seq_lens_q": cu_seq_lens_q, "cu_seq_lens_k": cu_seq_lens_k}
        lengths |= {"max_length_q": max_length_q, "max_length_k": max_length_k}
        if isinstance(cache, PagedAttentionCache):
            return self.forward_paged(input_ids, position_ids, attention_mask, cache, **lengths, **kwargs)
        refuse_global_tokens(kwargs, type(self).__name__)
        if cache is not None:
            self.refuse_cache_of_checkpointing()
        if cache is not None and encoder_hidden_states is not None:
            cache = self.cache_with_source(cache)
        output_attentions = self.records("output_attentions", kwargs)
        has_states = self.records("output_hidden_states", kwargs)
        call = StackCall(
            output_attentions,
            can_unpad=is_empty(cache) and not (has_states or is_of_pairs(encoder_attention_mask)),
            has_pairs=is_of_pairs(attention_mask),
            past_length=None if cache is None else cache.get_seq_length(),
            use_cache=bool(use_cache),
        )
        tokens = require_tokens(input_ids, inputs_embeds)
        sequences = sequences or self.find_sequences(tokens, attention_mask, position_ids, lengths, cache)
        layout = self.lay_out(sequences, position_ids, call)
        if use_cache and cache is None and layout.has_rows:
            cache = DynamicCache(config=self.config)
            cache = cache if encoder_hidden_states is None else self.cache_with_source(cache)
        x = self.embed(layout, input_ids, inputs_embeds, token_type_ids)
        masks = self.masks(layout, x, attention_mask, output_attentions, cache, kwargs.get("is_causal"))
        source, source_mask = encoder_hidden_states, None
        if source is not None:
            bounds, given = (cu_seq_lens_k, max_length_k), encoder_attention_mask
            source, source_mask = self.prepare_source(layout, x, source, given, bounds, output_attentions)
        arguments = kernel_arguments(kwargs) | {"output_attentions": output_attentions}
        places = source, source_mask, cache, output_positions
        states = self.transform(layout, x, masks, arguments, *places, can_round=not has_states)
        return BaseModelOutputWithPastAndCrossAttentions(states, **by_name(cache))

    def decode_step(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        attention_mask: Tensor | None,
        cache: Cache,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
    ) -> Tensor:
        """States (B, 1, C) of one more token of each sequence (B, 1), behind a cache that grows.

        It is `forward` for a step of decoding, whose layout is known and whose outputs are not recorded. No
        layer is sliding, since the caches of those do not grow.
        """
        layout = Layout(position_ids)
        x = self.embed(layout, input_ids, None, None)
        mask = None  # all that is cached, and itself
        if attention_mask is not None and not attention_mask.all():
            mask = attention_mask[:, None, None].bool()  # (B, 1, 1, S)
        pairs = None
        if source is not None:
            source, pairs = self.prepare_source(layout, x, source, source_mask, (None, None), False)
        arguments = {"is_decode_step": True}
        masks: Masks = {"full_attention": mask}
        return self.transform(layout, x, masks, arguments, source, pairs, cache)

    def forward_paged(
        self,
        input_ids: Tensor | None,
        position_ids: Tensor | None,
        attention_mask: Mask | Masks,
        pages: PagedAttentionCache,
        **arguments: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """States (1, N, C) of new tokens of many texts, whose keys and values lie in the pages of one cache.

        So transformers' continuous batching calls. What a text has so far is found in the pages by lengths
        and masks which are therefore transformers' alone.
        """
        assert position_ids is not None  # which are part of that call
        layout = Layout(position_ids)
        x = self.embed(layout, input_ids, None, None)
        is_by_type = isinstance(attention_mask, dict)
        masks = attention_mask if is_by_type else dict.fromkeys(self.config.types_of_layers, attention_mask)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=self.transform(layout, x, masks, arguments, cache=cast(Any, pages))
        )

    def refuse_cache_of_checkpointing(self) -> None:
        """Raise a `ValueError` if layers are to be computed again, which would fill a cache twice."""
        if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
            raise ValueError(
                f"a cache is given to {type(self).__name__} with gradient checkpointing, whose backward pass "
                "computes layers again: leave the cache out, or call gradient_checkpointing_disable()"
            )

    def cache_with_source(self, cache: Cache) -> EncoderDecoderCache:
        """Add a cache of the source to that of the target; it is filled when it is first read."""
        if isinstance(cache, EncoderDecoderCache):
            return cache
        return EncoderDecoderCache(cache, DynamicCache(config=self.config))

    def prepare_source(
        self,
        layout: Layout,
        x: Tensor,
        source: Tensor,
        source_mask: Tensor | None,
        bounds: tuple[Tensor | None, int | None],
        output_attentions: bool,
    ) -> tuple[Tensor, Mask]:
        """Bring the source into the layout of the target, and build the mask of cross-attention."""
        (cu_seq_lens_k, max_length_k), padding = bounds, None
        if cu_seq_lens_k is not None:
            refuse_mask_of_packed(source_mask)
        require_mask(
            source_mask,
            x.shape[:2] if layout.padding is None else layout.padding.shape,
            source.shape[1],
            self.config.num_attention_heads,
            "encoder_attention_mask",
        )
        if layout.padding is not None:
            real = torch.ones(source.shape[:2], device=source.device) if source_mask is None else source_mask
            padding = Padding(real)
            source, cu_seq_lens_k = padding.pack(source), padding.cu_seq_lens
        own, pairs = layout.sequences, None
        num_others = None if layout.sequence_ids is None else 0  # a mask keeps these apart
        num_targets = num_others if own is None else len(own.cu_seq_lens_q) - 1
        require_pairs(cu_seq_lens_k, source.shape[:2], num_targets)
        if cu_seq_lens_k is not None and own is not None:
            longest = own.max_length_q, max_length_k
            return source, PackedSequences(own.cu_seq_lens_q, cu_seq_lens_k, *longest, key_padding=padding)
        if cu_seq_lens_k is not None and layout.sequence_ids is not None:
            pairs = within(layout.sequence_ids, sequence_ids(cu_seq_lens_k, source.shape[1]))
        config = self.masking_config(output_attentions)
        if is_of_pairs(source_mask):
            return source, kernel_mask(source_mask, str(config._attn_implementation), x)
        return source, create_bidirectional_mask(
            config,
            x,
            source_mask,
            encoder_hidden_states=source,
            and_mask_function=pairs,
        )


class TercetDecoderForCausalLM(TercetGenerativeModel, GenerationMixin):
    """The decoder and a prediction of the next token."""

    config: TercetDecoderConfig
    _tied_weights_keys = {"lm_head.weight": "model.embeddings.embed_tokens.weight"}

    def __init__(self, config: TercetDecoderConfig):
        super().__init__(config)
        self.model = TercetDecoderModel(config)
        self.build_lm_head(config)
        self.post_init()

    @known_arguments("shift_labels", *LOSS_KEYWORDS, drops=GENERATION_KEYWORDS)
    @by_steps
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | Masks | None = None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        output_positions: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **kwargs: Keywords,
    ) -> CausalLMOutputWithPast:
        """Predict the next token: logits (B, T, V), and the loss of `labels` (B, T), the tokens themselves.

        Labels are shifted here, and the first token of a sequence is never a target. `shift_labels` (B, T)
        are targets that the caller has shifted. With `output_positions` (n,) of the flattened batch, logits
        (1, n, V) and loss are those of these positions. See `TercetDecoderModel.forward` for the inputs,
        `TercetLMHeadModel.compute_loss_and_logits` for what is returned, and `LossArguments` for the loss.
        """
        loss_arguments, targets = take_loss_arguments(kwargs), kwargs.pop("shift_labels", None)
        tokens, sequences = require_tokens(input_ids, inputs_embeds), None
        if labels is not None and targets is None:
            sequences = self.find_sequences(tokens, attention_mask, position_ids, kwargs, cache)
            targets = next_tokens(labels, sequences)
        if targets is not None and use_cache is None:
            use_cache = False
        asked = self.asked_positions(tokens.shape[:2], targets, output_positions, logits_to_keep, kwargs)
        outputs = self.model(
            input_ids,
            attention_mask,
            position_ids,
            cache,
            inputs_embeds,
            token_type_ids,
            use_cache=use_cache,
            output_positions=asked,
            sequences=sequences,
            **kwargs,
        )
        loss, logits = self.compute_loss_and_logits(
            outputs.last_hidden_state,
            select_targets(targets, asked),
            logits_to_keep,
            loss_arguments,
            is_selected=output_positions is not None,
        )
        return CausalLMOutputWithPast(loss=loss, logits=logits, **recordings(outputs, CausalLMOutputWithPast))

    def decode_step(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        cache: Cache,
        attention_mask: Tensor | None = None,
    ) -> CausalLMOutputWithPast:
        states = self.model.decode_step(input_ids, position_ids, attention_mask, cache)
        return CausalLMOutputWithPast(logits=self.compute_logits(states), **by_name(cache))


class TercetDecoderForMaskedLM(TercetLMHeadModel):
    """A decoder without its causal mask, and a prediction of masked tokens.

    It has the parameters of `TercetDecoderForCausalLM`, by the same names: either class loads what the other
    has saved. A bias of positions that is learned for one direction is refused, since it would be read with
    the buckets of the other one.
    """

    config: TercetDecoderConfig
    logits_offset = 1
    _tied_weights_keys = {"lm_head.weight": "model.embeddings.embed_tokens.weight"}

    def __init__(self, config: TercetDecoderConfig):
        POSITIONS[config.position_embedding_type].bias(config, is_causal=True).require_direction(False)
        super().__init__(config)
        self.model = TercetDecoderModel(config, is_causal=False)
        self.build_lm_head(config)
        self.post_init()

    @known_arguments("shift_labels", *LOSS_KEYWORDS)
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | Masks | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        output_positions: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **kwargs: Keywords,
    ) -> MaskedLMOutput:
        """Predict tokens: logits (B, T, V), and the loss where `labels` (B, T) is not -100.

        Logits and labels are aligned with the input; pads and first tokens of sequences are no targets.
        `shift_labels` (B, T) are targets that the caller has moved to the position before. With
        `output_positions` (n,) of the flattened batch, the logits (1, n, V) are those of these positions. See
        `TercetDecoderModel.forward` for the inputs, and `LossArguments` for the loss.
        """
        loss_arguments, targets = take_loss_arguments(kwargs), None
        tokens = require_tokens(input_ids, inputs_embeds)
        sequences = self.find_sequences(tokens, attention_mask, position_ids, kwargs)
        if (shifted := kwargs.pop("shift_labels", None)) is not None:
            targets = F.pad(shifted, (1, 0), value=IGNORE)[..., :-1]
        elif labels is not None:
            targets = predicted_tokens(labels, sequences)
        asked = self.asked_positions(sequences.size, targets, output_positions, logits_to_keep, kwargs)
        outputs = self.model(
            input_ids,
            attention_mask,
            position_ids,
            inputs_embeds=inputs_embeds,
            token_type_ids=token_type_ids,
            output_positions=None if asked is None else self.state_positions(asked),
            sequences=sequences,
            **kwargs | {"is_causal": False, "use_cache": False},
        )
        states = outputs.last_hidden_state
        if asked is None:  # each state moves to the token that it predicts
            states = torch.cat([states[:, :1], states], dim=1)[:, :-1]
        loss, logits = self.compute_loss_and_logits(
            states,
            select_targets(targets, asked),
            logits_to_keep,
            loss_arguments,
            is_selected=output_positions is not None,
        )
        return MaskedLMOutput(loss=loss, logits=logits, **recordings(outputs, MaskedLMOutput))


class TercetDecoderForSequenceClassification(SequenceLabels, TercetLabelModel):
    """The decoder and labels of whole sequences, by default read from the last token as in GPT-2."""

    config: TercetDecoderConfig
    stack = TercetDecoderModel


class TercetDecoderForTokenClassification(TokenLabels, TercetLabelModel):
    """The decoder and labels of single tokens, each known from what came before it."""

    config: TercetDecoderConfig
    stack = TercetDecoderModel


class TercetDecoderForQuestionAnswering(TercetForQuestionAnswering):
    """The decoder and where an answer starts and ends."""

    config: TercetDecoderConfig
    stack = TercetDecoderModel


class TercetDecoderForMultipleChoice(ChosenText, TercetLabelModel):
    """The decoder and which of several texts is the correct one.

    Each is read by itself and scored at its last token (Radford et al., 2018, section 3.3).
    """

    config: TercetDecoderConfig
    stack = TercetDecoderModel


class TercetDecoderForSentenceEmbedding(TercetForSentenceEmbedding):
    """The decoder and a vector for each text, by default the state of its last token, which has read all."""

    config: TercetDecoderConfig
    stack = TercetDecoderModel
