"""What every Transformer of the family is to transformers, and those of them that end in the vocabulary."""

from typing import Any, ClassVar

from torch import Tensor

from .attention.multi_head import SelfAttention
from .configuration_checks import require_implementation
from .configuration_tercet import TercetConfig
from .heads.targets import IGNORE, require_size
from .layers.block import Block
from .pretrained_neural import NeuralLMHeadModel, NeuralPreTrainedModel
from .tracing import is_tracing


class TercetPreTrainedModel(NeuralPreTrainedModel):
    """What transformers needs to know of every Transformer: kernels, checkpointing, recordable outputs."""

    config: TercetConfig
    supports_gradient_checkpointing = True
    _no_split_modules = ["PreNormBlock", "PostNormBlock", "ParallelBlock"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _can_record_outputs = {"hidden_states": Block, "attentions": SelfAttention}

    def _check_and_adjust_attn_implementation(
        self, attn_implementation: str | None, *args: Any, **kwargs: Any
    ) -> str:
        require_implementation(self.config, attn_implementation)
        loaded = super()._check_and_adjust_attn_implementation(attn_implementation, *args, **kwargs)
        require_implementation(self.config, loaded)  # of a kernel of the Hub, more is known now
        return loaded


class TercetLMHeadModel(TercetPreTrainedModel, NeuralLMHeadModel):
    """A Transformer that ends in the vocabulary. Abstract: each member says what its targets are."""

    config: TercetConfig
    logits_offset: ClassVar[int] = 0
    """How many positions before its logits the state stands that they are computed from."""

    def asked_positions(
        self,
        tokens: Tensor,
        targets: Tensor | None,
        output_positions: Tensor | None,
        logits_to_keep: int | Tensor,
        arguments: dict[str, Any],
    ) -> Tensor | None:
        """Find the positions (n,) of the flattened batch whose states are read; `None`: all.

        They are those that the caller names, or in training those of the targets (B, T): no others reach the
        vocabulary, so that the last layer computes no others. It computes all of them in a compiled graph,
        where states are to be returned or some logits kept, and behind an encoder.

        Raises:
            ValueError: If there are not as many targets as `tokens` (B, T).
        """
        if targets is not None:
            require_size(targets, tokens.shape[:2])
        if output_positions is not None or targets is None or not self.training or is_tracing():
            return output_positions
        is_whole = isinstance(logits_to_keep, int) and logits_to_keep == 0
        if not is_whole or self.records("output_hidden_states", arguments):
            return None
        if arguments.get("encoder_hidden_states") is not None:
            return None
        return (targets != IGNORE).flatten().nonzero().squeeze(-1)

    def state_positions(self, positions: Tensor) -> Tensor:
        """Find the states that logits at positions (n,) of the flattened batch are computed from."""
        return (positions - self.logits_offset).clamp(min=0)
