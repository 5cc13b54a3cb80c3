"""The encoder: every token sees every other.

Masked language modeling and next-sentence prediction are those of Devlin et al., 2019.

Replaced-token detection: which tokens of a text are not those it was written with (Clark et al., 2020).

ELECTRA's discriminator learns from every real token, not only from the few that a generator has replaced.

Shapes: B batch, T positions, C model width, V vocabulary. Packed input is (1, N) instead of (B, T).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    NextSentencePredictorOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .attention.packing import Masks, is_of_pairs
from .compatibility import HEAD_KEYWORDS, known_arguments
from .configuration_tercet import TercetEncoderConfig
from .heads.losses import (
    IGNORE,
    LOSS_KEYWORDS,
    LossArguments,
    at_least_float32,
    checked_labels,
    logits_loss,
    reduce_loss,
    require_plain_loss,
    require_size,
    select_targets,
    take_loss_arguments,
    without_pads,
)
from .heads.tasks import (
    ChosenText,
    SequenceLabels,
    TercetForQuestionAnswering,
    TercetForSentenceEmbedding,
    TercetLabelModel,
    TokenLabels,
)
from .layers.position_wise import build_activation
from .outputs import Keywords, TercetForPreTrainingOutput, recordings
from .pretrained import NextSentenceHead, TercetLMHeadModel
from .sequences import Sequences, require_tokens
from .stack import StackCall, TercetStack, kernel_arguments, require_global_tokens


class TercetEncoderModel(TercetStack):
    """Embeddings, bidirectional blocks, final norm."""

    config: TercetEncoderConfig

    def __init__(self, config: TercetEncoderConfig):
        super().__init__(config, is_causal=False)

    @known_arguments(*HEAD_KEYWORDS)
    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | Masks | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        max_length_q: int | None = None,
        output_positions: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        sequences: Sequences | None = None,
        **kwargs: Keywords,
    ) -> BaseModelOutput:
        """Contextual states (B, T, C) of tokens (B, T).

        Args:
            input_ids: (B, T), padded on either side; or packed (1, N).
            attention_mask: Mask of tokens, (B, T), 0 at pads; of their pairs, (B, T, T) or (B, H, T, T); or a
                dictionary of those, one for each type of layer. See `attention/masks.py`.
            token_type_ids: Segment of each token, (B, T).
            position_ids: (B, T). By default real tokens are counted; in a packed stream they restart.
            inputs_embeds: Vectors (B, T, C) instead of ids; of the tokens' own width, if it is another one.
            cu_seq_lens_q: Cumulative lengths (S+1,) of packed sequences, which never see each other. They cut
                all tokens, from 0 to N; on a GPU this is not checked, and others give wrong gradients.
            max_length_q: Longest of them, in tokens, if known.
            output_positions: Positions (n,) of the flattened batch or stream: the last layer computes only
                their states, which are returned as (1, n, C).
            global_attention_mask: (B, T), 1 at tokens that attend to all tokens of their text and to which
                all attend, whatever the pattern of a layer is (Beltagy et al., 2020, section 3.1).
            sequences: Where those of the tokens lie, if a head has found them.
            **kwargs: `output_hidden_states`, `output_attentions`; the rest goes to the attention kernel.
        """
        output_attentions = self.records("output_attentions", kwargs)
        tokens = require_tokens(input_ids, inputs_embeds)
        bounds = {"cu_seq_lens_q": cu_seq_lens_q, "max_length_q": max_length_q}
        sequences = sequences or self.find_sequences(tokens, attention_mask, position_ids, bounds)
        global_tokens = require_global_tokens(
            global_attention_mask, sequences.size, attention_mask, self.config._attn_implementation
        )
        call = StackCall(
            output_attentions,
            can_unpad=not self.records("output_hidden_states", kwargs),
            has_pairs=is_of_pairs(attention_mask),
        )
        layout = self.lay_out(sequences, position_ids, call)
        x = self.embed(layout, input_ids, inputs_embeds, token_type_ids)
        seen = {"is_causal": kwargs.get("is_causal"), "global_tokens": global_tokens}
        masks = self.masks(layout, x, attention_mask, output_attentions, **seen)
        arguments = kernel_arguments(kwargs) | {"output_attentions": output_attentions}
        states = self.transform(
            layout, x, masks, arguments, output_positions=output_positions, can_round=call.can_unpad
        )
        return BaseModelOutput(last_hidden_state=states)


class TercetEncoderForMaskedLM(TercetLMHeadModel):
    """The encoder and a prediction of hidden tokens."""

    config: TercetEncoderConfig
    _keys_to_ignore_on_load_unexpected = ["next_sentence_head"]  # of a model that learned both (BERT's)
    _tied_weights_keys = {"lm_head.weight": "model.embeddings.embed_tokens.weight"}

    def __init__(self, config: TercetEncoderConfig):
        super().__init__(config)
        self.model = TercetEncoderModel(config)
        self.build_lm_head(config)
        self.post_init()

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
        logits_to_keep: int | Tensor = 0,
        output_positions: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Keywords,
    ) -> MaskedLMOutput:
        """Predict tokens: logits (B, T, V), and the loss where `labels` (B, T) is not -100, pads left out.

        With `output_positions` (n,) of the flattened batch, logits (1, n, V) and loss are those of these
        positions. See `TercetEncoderModel.forward` for the inputs,
        `TercetLMHeadModel.compute_loss_and_logits` for what is returned when, and `LossArguments` for the
        loss.
        """
        loss_arguments = take_loss_arguments(kwargs)
        tokens = require_tokens(input_ids, inputs_embeds)
        sequences = self.find_sequences(tokens, attention_mask, position_ids, kwargs)
        targets = None if labels is None else without_pads(labels, sequences)
        asked = self.asked_positions(sequences.size, targets, output_positions, logits_to_keep, kwargs)
        outputs = self.model(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            output_positions=asked,
            global_attention_mask=global_attention_mask,
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
        return MaskedLMOutput(loss=loss, logits=logits, **recordings(outputs, MaskedLMOutput))


class TercetEncoderForNextSentencePrediction(TercetLabelModel):
    """The encoder and a classification of pairs: does sentence B follow sentence A?

    Logits are (B, 2), and `labels` (B,): 0 if B follows, 1 if it is random.
    """

    config: TercetEncoderConfig
    stack = TercetEncoderModel
    output = NextSentencePredictorOutput
    finds_pads = False  # the first token stands for a pair, whatever it is, as in a model with both heads

    def build_head(self) -> None:
        self.next_sentence_head = NextSentenceHead(self.config)

    def scores(self, states: Tensor, sequences: Sequences, num_rows: int) -> Tensor:
        return self.next_sentence_head(states[sequences.first])

    def loss(self, logits: Tensor, targets: Tensor, loss_arguments: LossArguments) -> Tensor:
        return next_sentence_loss(logits, targets, loss_arguments)


class TercetEncoderForPreTraining(TercetLMHeadModel):
    """The encoder with both heads of BERT: hidden tokens and the next sentence."""

    config: TercetEncoderConfig
    _tied_weights_keys = {"lm_head.weight": "model.embeddings.embed_tokens.weight"}
    # Two means have no common number of items to divide by, so that Trainer has to divide by its steps.
    accepts_loss_kwargs = False

    def __init__(self, config: TercetEncoderConfig):
        super().__init__(config)
        self.model = TercetEncoderModel(config)
        self.build_lm_head(config)
        self.next_sentence_head = NextSentenceHead(config)
        self.post_init()

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
        next_sentence_label: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        output_positions: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **kwargs: Keywords,
    ) -> TercetForPreTrainingOutput:
        """Predict tokens and judge pairs, with the loss of `labels` (B, T), of `next_sentence_label` (B,),
        and their sum.

        With `output_positions` (n,) of the flattened batch, tokens are predicted at these alone. See
        `TercetEncoderModel.forward` for the inputs and `TercetLMHeadModel.compute_loss_and_logits` for
        what is returned when.
        """
        loss_arguments = take_loss_arguments(kwargs)
        tokens = require_tokens(input_ids, inputs_embeds)
        sequences = self.find_sequences(tokens, attention_mask, position_ids, kwargs)
        targets = None if labels is None else without_pads(labels, sequences)
        asked = self.asked_positions(sequences.size, targets, output_positions, logits_to_keep, kwargs)
        rows, columns = sequences.first
        first = rows * sequences.size[1] + columns  # in the flattened batch
        outputs = self.model(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            output_positions=None if asked is None else torch.cat([first, asked]),
            global_attention_mask=global_attention_mask,
            sequences=sequences,
            **kwargs,
        )
        states = outputs.last_hidden_state
        of_pairs = states.flatten(0, 1)[first] if asked is None else states[0, : len(first)]
        states = states if asked is None else states[:, len(first) :]
        targets, is_selected = select_targets(targets, asked), output_positions is not None
        token_loss, token_logits = self.compute_loss_and_logits(
            states, targets, logits_to_keep, loss_arguments, is_selected=is_selected
        )
        pair_logits = self.next_sentence_head(of_pairs)
        pair_loss = None
        if next_sentence_label is not None:
            pair_loss = next_sentence_loss(pair_logits, next_sentence_label, loss_arguments)
        losses = [loss for loss in (token_loss, pair_loss) if loss is not None]
        return TercetForPreTrainingOutput(
            loss=sum(losses[1:], losses[0]) if losses else None,
            prediction_logits=token_logits,
            seq_relationship_logits=pair_logits,
            masked_lm_loss=token_loss,
            next_sentence_loss=pair_loss,
            **recordings(outputs, TercetForPreTrainingOutput),
        )


def next_sentence_loss(logits: Tensor, labels: Tensor, loss_arguments: LossArguments) -> Tensor:
    """Cross-entropy of `labels` (B,) or (B, 1) under logits (B, 2); a z-loss is the vocabulary's alone."""
    plain: LossArguments = {**loss_arguments, "z_loss": 0.0}
    return logits_loss(logits, labels.view(-1), **plain)


class ReplacedTokenHead(nn.Module):
    """w act(W x + b) + c: section 2 of the paper has no dense layer, the published models do."""

    def __init__(self, config: TercetEncoderConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act_fn = build_activation(config.hidden_act)
        self.out_proj = nn.Linear(config.hidden_size, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Score each token as replaced: (B, T, C) -> (B, T)."""
        return self.out_proj(self.act_fn(self.dense(x))).squeeze(-1)


class TercetEncoderForReplacedTokenDetection(TercetLabelModel):
    """The encoder and a classification of each token: is it the original one?

    Logits are (B, T), above 0 where a token seems replaced; see `replaced_token_loss` for the labels.

    Example:
        >>> import torch
        >>> from tercet import TercetEncoderConfig, TercetEncoderForReplacedTokenDetection
        >>> config = TercetEncoderConfig(hidden_size=32, num_attention_heads=2)
        >>> model = TercetEncoderForReplacedTokenDetection(config)
        >>> model(torch.tensor([[5, 6, 7], [8, 9, 4]])).logits.shape
        torch.Size([2, 3])
    """

    config: TercetEncoderConfig
    stack = TercetEncoderModel
    output = TokenClassifierOutput

    def build_head(self) -> None:
        self.replaced_token_head = ReplacedTokenHead(self.config)

    def scores(self, states: Tensor, sequences: Sequences, num_rows: int) -> Tensor:
        return self.replaced_token_head(states)

    def targets(self, labels: Tensor, sequences: Sequences) -> Tensor:
        return without_pads(labels, sequences)

    def loss(self, logits: Tensor, targets: Tensor, loss_arguments: LossArguments) -> Tensor:
        return replaced_token_loss(logits, targets, loss_arguments)


def replaced_token_loss(logits: Tensor, labels: Tensor, loss_arguments: LossArguments) -> Tensor:
    """Binary cross-entropy of `labels` (B, T) under logits (B, T): 1 replaced, 0 original, -100 ignored.

    A replacement that equals the original token counts as original (section 2).
    """
    require_plain_loss("whether a token is replaced", loss_arguments)
    require_size(labels, logits.shape)
    labels = checked_labels(labels, 2)
    is_target = labels != IGNORE
    logits = at_least_float32(logits)
    # Elsewhere than on a CPU a wrong label comes behind the two, and makes the loss nan.
    targets = (labels == 1).to(logits.dtype).masked_fill(labels > 1, torch.nan)
    losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    total = losses.masked_fill(~is_target, 0).sum()
    return reduce_loss(total, is_target.sum(), loss_arguments)


class TercetEncoderForSequenceClassification(SequenceLabels, TercetLabelModel):
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


class TercetEncoderForTokenClassification(TokenLabels, TercetLabelModel):
    """The encoder and labels of single tokens."""

    config: TercetEncoderConfig
    stack = TercetEncoderModel


class TercetEncoderForQuestionAnswering(TercetForQuestionAnswering):
    """The encoder and where an answer starts and ends."""

    config: TercetEncoderConfig
    stack = TercetEncoderModel


class TercetEncoderForMultipleChoice(ChosenText, TercetLabelModel):
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
