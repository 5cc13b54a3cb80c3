"""Replaced-token detection: which tokens of a text are not those it was written with (Clark et al., 2020).

ELECTRA's discriminator learns from every real token, not only from the few that a generator has replaced.

Shapes: B batch, T positions, C model width. Packed input is (1, N) instead of (B, T).
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_outputs import TokenClassifierOutput
from transformers.utils.generic import can_return_tuple

from .classification import require_plain_loss
from .configuration_tercet import TercetEncoderConfig
from .cross_entropy import at_least_float32, reduce_loss, take_loss_arguments
from .feed_forward import build_activation
from .modeling_tercet_encoder import TercetEncoderModel
from .outputs import Keywords
from .packing import Masks
from .pretrained_tercet import TercetPreTrainedModel
from .stack_arguments import refuse_output_positions
from .targets import IGNORE, checked_labels, require_size, without_pads


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


class TercetEncoderForReplacedTokenDetection(TercetPreTrainedModel):
    """The encoder and a classification of each token: is it the original one?

    Example:
        >>> import torch
        >>> from tercet import TercetEncoderConfig, TercetEncoderForReplacedTokenDetection
        >>> config = TercetEncoderConfig(hidden_size=32, num_attention_heads=2)
        >>> model = TercetEncoderForReplacedTokenDetection(config)
        >>> model(torch.tensor([[5, 6, 7], [8, 9, 4]])).logits.shape
        torch.Size([2, 3])
    """

    config: TercetEncoderConfig

    def __init__(self, config: TercetEncoderConfig):
        super().__init__(config)
        self.model = TercetEncoderModel(config)
        self.replaced_token_head = ReplacedTokenHead(config)
        self.post_init()

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
    ) -> TokenClassifierOutput:
        """Judge tokens: logits (B, T), above 0 where a token seems replaced, and the loss of `labels`.

        See `TercetEncoderModel.forward` for the inputs, `replaced_token_loss` for the labels, and
        `LossArguments` for the loss.
        """
        loss_arguments = take_loss_arguments(kwargs)
        refuse_output_positions(kwargs, type(self).__name__)
        outputs = self.model(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            global_attention_mask=global_attention_mask,
            **kwargs,
        )
        logits = self.replaced_token_head(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            loss = replaced_token_loss(logits, labels, attention_mask, **loss_arguments)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


def replaced_token_loss(
    logits: Tensor,
    labels: Tensor,
    attention_mask: Tensor | Masks | None = None,
    *,
    reduction: Literal["mean", "sum"] = "mean",
    num_items_in_batch: Tensor | int | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> Tensor:
    """Binary cross-entropy of `labels` (B, T) under logits (B, T): 1 replaced, 0 original, -100 ignored.

    Pads are never targets. A replacement that equals the original token counts as original (section 2).

    Raises:
        ValueError: If labels shall be smoothed, a z-loss is asked for, or a label is none of the three.
    """
    require_plain_loss("whether a token is replaced", label_smoothing, z_loss)
    require_size(labels, logits.shape)
    labels = checked_labels(without_pads(labels, attention_mask), 2)
    is_target = labels != IGNORE
    logits = at_least_float32(logits)
    # Elsewhere than on a CPU a wrong label comes behind the two, and makes the loss nan.
    targets = (labels == 1).to(logits.dtype).masked_fill(labels > 1, torch.nan)
    losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    total = losses.masked_fill(~is_target, 0).sum()
    return reduce_loss(total, is_target.sum(), reduction, num_items_in_batch)
