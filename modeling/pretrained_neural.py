"""What every neural member is to transformers, and those of them that end in the vocabulary.

Shapes: B batch, T positions, C model width, V vocabulary.
"""

from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_utils import PreTrainedModel

from .configuration_neural import NeuralConfig
from .generation.prepacked_weights import free_prepacked_weights
from .heads.cross_entropy import LossArguments, LossChunk, lm_head_loss, logits_loss
from .heads.pretraining import build_head_transform, keep_positions
from .layers.linear import init_scale
from .tracing import is_tracing


class NeuralPreTrainedModel(PreTrainedModel):
    """What transformers needs to know of every neural member: its base and its initial weights. Abstract."""

    config: NeuralConfig
    base_model_prefix = "model"

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.Linear) and (scale := init_scale(module)) is not None:
            init.normal_(module.weight, std=self.config.initializer_range * scale)
        if (draw := getattr(module, "draw", None)) is not None:
            draw()  # a module that draws its own weights

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Resize the vocabulary as transformers does; a model that refuses another table stays as it is."""
        self.set_input_embeddings(self.get_input_embeddings())
        return super().resize_token_embeddings(*args, **kwargs)

    def train(self, mode: bool = True) -> Self:
        """Switch to training or evaluation; what sped up decoding is of no use to weights that change."""
        if mode:
            free_prepacked_weights(self)
        return super().train(mode)

    def records(self, name: str, arguments: dict[str, Any]) -> bool:
        """Return whether the caller or the configuration requests an output such as `output_attentions`."""
        value = arguments.get(name)
        return bool(getattr(self.config, name) if value is None else value)


class NeuralLMHeadModel(NeuralPreTrainedModel):
    """A model that ends in the vocabulary. Abstract: each member says what its targets are."""

    _tp_plan = {"lm_head": "colwise_gather_output"}
    prepacks = True

    def build_lm_head(self, config: NeuralConfig) -> None:
        """Give the model `transform` and `lm_head`, and what computes their loss."""
        self.transform = build_head_transform(config)
        self.lm_head = nn.Linear(config.head_width, config.vocab_size, bias=config.head_bias)
        self.loss_chunk = LossChunk()

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """Logits (B, T, V) of states (B, T, C)."""
        return self.lm_head(self.transform(hidden_states))

    def compute_loss_and_logits(
        self,
        hidden_states: Tensor,
        targets: Tensor | None,
        logits_to_keep: int | Tensor,
        loss_arguments: LossArguments,
        is_selected: bool = False,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Loss and logits of states (B, T, C), whose targets (B, T) are `IGNORE` at other positions.

        Positions that are not kept have neither. In training with targets only these reach the vocabulary,
        and no logits are returned. Otherwise logits (B, T, V) are, whose loss is that of the definition. The
        caller may have selected the targets: see `lm_head_loss`.
        """
        states = keep_positions(hidden_states, logits_to_keep)
        if targets is None:
            return None, self.compute_logits(states)
        targets = keep_positions(targets, logits_to_keep)
        if self.training and not is_tracing():
            parts = {"transform": self.transform, "head": self.lm_head, "chunk": self.loss_chunk}
            return lm_head_loss(states, targets, **parts, **loss_arguments, is_selected=is_selected), None
        logits = self.compute_logits(states)
        return logits_loss(logits, targets, **loss_arguments), logits
