"""A decoder that is read in both directions: masked language modeling with the weights of a causal one.

A masked token is predicted where a decoder predicts it, one position before it (masked next-token prediction;
BehnamGhader et al., 2024, "LLM2Vec", section 2.1; Charpentier and Samuel, 2024, "GPT or BERT: why not both?",
section 2.1). So causal and masked language modeling train the same mapping from states to next tokens, and
differ only in what a state may attend to:

    causal   <s> my dog is            state of "is" -> hairy       attends to "<s> my dog is"
    masked   <s> my dog is [MASK] .   state of "is" -> hairy       attends to all six tokens

The logits here are aligned with the input, as users of masked language models expect: those of a masked token
stand at its own position. The first token of a sequence, which no state precedes, cannot be predicted.

Shapes: B batch, T positions, V vocabulary, n output positions. Packed: (1, N).
"""

# transformers types its mixin's methods for a protocol that not even its own models meet.
# pyright: reportIncompatibleMethodOverride=false

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.modeling_outputs import MaskedLMOutput
from transformers.utils.generic import can_return_tuple

from .configuration_tercet import TercetDecoderConfig
from .cross_entropy import take_loss_arguments
from .modeling_tercet_decoder import TercetDecoderModel
from .outputs import Keywords
from .packing import Masks
from .positions import POSITIONS
from .pretrained_tercet import TercetLMHeadModel
from .stack_arguments import require_tokens
from .targets import IGNORE, predicted_tokens, select_targets


class TercetDecoderForMaskedLM(TercetLMHeadModel):
    """A decoder without its causal mask, and a prediction of masked tokens.

    It has the parameters of `TercetDecoderForCausalLM`, by the same names: either class loads what the other
    has saved.

    Raises:
        ValueError: If positions add a bias that is learned for one direction, since a causal decoder's would
            be read with the buckets of the other one.
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
        if (shifted := kwargs.pop("shift_labels", None)) is not None:
            targets = F.pad(shifted, (1, 0), value=IGNORE)[..., :-1]
        elif labels is not None:
            targets = predicted_tokens(labels, attention_mask, position_ids, kwargs.get("cu_seq_lens_q"))
        tokens = require_tokens(input_ids, inputs_embeds)
        asked = self.asked_positions(tokens, targets, output_positions, logits_to_keep, kwargs)
        outputs = self.model(
            input_ids,
            attention_mask,
            position_ids,
            inputs_embeds=inputs_embeds,
            token_type_ids=token_type_ids,
            output_positions=None if asked is None else self.state_positions(asked),
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
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )
