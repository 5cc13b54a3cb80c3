"""What every member is to transformers, and those that end in the vocabulary, with their heads.

Shapes: B batch, T positions, C model width, E width that the LM head reads, V vocabulary.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.modeling_utils import PreTrainedModel

from .attention.multi_head import SelfAttention
from .compatibility import is_tracing, warn_if_untested
from .configuration_neural import NeuralConfig
from .configuration_tercet import TercetConfig, require_implementation
from .generation.prepacked_weights import free_prepacked_weights
from .heads.losses import IGNORE, LossArguments, LossChunk, lm_head_loss, logits_loss, require_size
from .layers.block import Block
from .layers.position_wise import build_activation, build_norm, init_scale
from .sequences import Sequences, find_sequences


class HeadTransform(nn.Module):
    """A last non-linear step before the vocabulary, norm(act(W x + b)), as in BERT; `mlp_bias` gives it b.

    It leads to the width of token vectors that the head is tied to, as in ELECTRA's generator.
    """

    prepacks = True
    is_compiled_with_layers = True
    activated = ("dense", "act_fn")  # may be one product: see prepacked_weights

    def __init__(self, config: NeuralConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.head_width, bias=config.mlp_bias)
        self.act_fn = build_activation(config.hidden_act)
        self.norm = build_norm(config, config.head_width)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position: (B, T, C) -> (B, T, E)."""
        return self.norm(self.act_fn(self.dense(x)))


def build_head_transform(config: NeuralConfig) -> nn.Module:
    """Build the transform if the configuration has one."""
    if not config.head_transform and config.head_width != config.hidden_size:
        raise ValueError(
            f"the LM head is tied to token embeddings of embedding_size ({config.embedding_size}), but "
            f"there is no projection from hidden_size ({config.hidden_size}): choose head_transform=True as "
            "in ELECTRA, tie_word_embeddings=False, or the same size for both"
        )
    return HeadTransform(config) if config.head_transform else nn.Identity()


class NextSentenceHead(nn.Module):
    """Does B follow A? Read from the first token through a tanh layer (Devlin et al., 2019, section 3.1)."""

    def __init__(self, config: NeuralConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, 2)
        self.act_fn = nn.Tanh()

    def forward(self, first_token: Tensor) -> Tensor:
        """Scores of "follows" and "random": (B, C) -> (B, 2)."""
        return self.classifier(self.act_fn(self.dense(first_token)))


def keep_positions(hidden_states: Tensor, logits_to_keep: int | Tensor) -> Tensor:
    """Keep the last `logits_to_keep` positions (0: all), or those it lists: (B, T, C) -> (B, n, C)."""
    if isinstance(logits_to_keep, int):
        return hidden_states[:, slice(-logits_to_keep, None) if logits_to_keep else slice(None)]
    return hidden_states[:, logits_to_keep]


class NeuralPreTrainedModel(PreTrainedModel):
    """What transformers needs to know of every neural member: its base and its initial weights. Abstract."""

    config: NeuralConfig
    base_model_prefix = "model"
    # transformers would hand out parts of a text to processes, and exchange keys in its own attention alone.
    _supports_context_parallel = False

    def __init__(self, config: NeuralConfig, *args: Any, **kwargs: Any):
        super().__init__(config, *args, **kwargs)
        warn_if_untested()

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
        """Build `transform` and `lm_head`, and what computes their loss."""
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


class TercetPreTrainedModel(NeuralPreTrainedModel):
    """What transformers needs to know of every Transformer: kernels, checkpointing, recordable outputs."""

    config: TercetConfig
    supports_gradient_checkpointing = True
    _no_split_modules = ["PreNormBlock", "PostNormBlock", "ParallelBlock"]
    _skip_keys_device_placement = ["cache", "past_key_values"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _can_record_outputs = {"hidden_states": Block, "attentions": SelfAttention}

    def __init__(self, config: TercetConfig, *args: Any, **kwargs: Any):
        require_implementation(config, config._attn_implementation)
        super().__init__(config, *args, **kwargs)
        require_implementation(
            self.config, self.config._attn_implementation
        )  # a kernel of the Hub is known now

    def find_sequences(
        self,
        tokens: Tensor,
        attention_mask: object,
        position_ids: Tensor | None,
        arguments: Mapping[str, Any],
        cache: Cache | None = None,
        side: str = "q",
        prefix: str = "",
    ) -> Sequences:
        """Find the sequences of tokens (B, T) or (B, T, C) by what `forward` is given.

        `arguments` may bound what attends ("q") and what is attended to ("k"); where they bound the other
        side alone, positions tell nothing. `prefix` begins the name of the mask.
        """
        bounds = {each: arguments.get(f"cu_seq_lens_{each}") for each in "qk"}
        is_bounded = any(each is not None for each in bounds.values())
        return find_sequences(
            tokens,
            attention_mask,
            None if is_bounded else position_ids,
            bounds[side],
            arguments.get(f"max_length_{side}"),
            num_heads=self.config.num_attention_heads,
            past_length=None if cache is None else cache.get_seq_length(),
            names=(f"{prefix}attention_mask", f"cu_seq_lens_{side}"),
        )

    def set_attn_implementation(self, attn_implementation: str | dict, *args: Any, **kwargs: Any) -> None:
        """Choose the kernel of attention as transformers does; one that cannot serve changes nothing."""
        by_model = attn_implementation if isinstance(attn_implementation, dict) else {"": attn_implementation}
        configs = [module.config for module in self.modules() if isinstance(module, TercetPreTrainedModel)]
        before = [config._attn_implementation for config in configs]
        for implementation in by_model.values():
            require_implementation(self.config, implementation)
        super().set_attn_implementation(attn_implementation, *args, **kwargs)
        try:
            for config in configs:
                require_implementation(config, config._attn_implementation)
        except ValueError:
            for config, implementation in zip(configs, before, strict=True):
                config._attn_implementation = implementation
            raise


class TercetLMHeadModel(TercetPreTrainedModel, NeuralLMHeadModel):
    """A Transformer that ends in the vocabulary. Abstract: each member says what its targets are."""

    config: TercetConfig
    logits_offset: ClassVar[int] = 0
    """How many positions before its logits the state stands that they are computed from."""

    def asked_positions(
        self,
        size: torch.Size,
        targets: Tensor | None,
        output_positions: Tensor | None,
        logits_to_keep: int | Tensor,
        arguments: dict[str, Any],
    ) -> Tensor | None:
        """Find the positions (n,) of the flattened batch whose states are read; `None`: all.

        They are those that the caller names, or in training those of the targets (B, T): no others reach the
        vocabulary, so that the last layer computes no others. It computes all of them in a compiled graph,
        where states are to be returned or some logits kept, and behind an encoder.
        """
        if targets is not None:
            require_size(targets, size)
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
