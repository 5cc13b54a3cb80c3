"""Configurations of the Transformers: one set of fields, and one final class per member.

The defaults describe a modern Transformer: rotary positions, root-mean-square norm before every sub-layer,
gated feed-forward network, no biases. The classics (Vaswani et al., 2017; BERT; GPT-2; BART) are other
values of the same fields, shipped as presets. Names are transformers' own wherever it has one.

`attn_implementation` is one of transformers' own names, or a kernel of the Hub. This is named by its
repository, maybe with a revision and a function of it: `kernels-community/flash-attn2@v1:flash_attn`.
transformers also puts such a name in the place of `flash_attention_2` where that is not installed. What a
kernel reads follows from the kind of mask that transformers builds for it, and is only known once it is
loaded; before, its name has to do.

Each field that cannot be as it is has one clear line. Plans name a style of each module, in transformers'
terms, to split a model among devices. With tensor parallelism every device computes with some of the heads,
and with a part of the feed-forward network's inner width. It holds columns of a sub-layer's first linear
layers and rows of the last one, and a sum brings the results together (Shoeybi et al., 2019, section 3).
Token vectors and the LM head are split by vocabulary entries. With FSDP every device holds a part of each
weight, and gathers those of a block when it comes to it.
"""

import copy
import inspect
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import torch
from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, flash_attention_mask
from transformers.modeling_flash_attention_utils import lazy_import_flash_attention
from transformers.utils.generic import is_flash_attention_requested

from .attention.patterns import PATTERNS, require_layer_types
from .attention.scores import GATES, SCORES
from .configuration_neural import (
    ClassifierActivation,
    ClassifierPooling,
    NeuralConfig,
    is_unset,
    require_at_least,
    require_choice,
)
from .configuration_rotary import RotaryConfig
from .layers.positions import POSITIONS, NoPositions


def takes_bounds(implementation: str | None) -> bool:
    """Return whether attention reads bounds of packed sequences, and no mask of pairs: flash kernels do."""
    builds_mask = ALL_MASK_ATTENTION_FUNCTIONS.get(implementation)
    if builds_mask is None:
        return is_flash_attention_requested(requested_attention_implementation=implementation)
    return builds_mask is flash_attention_mask


def takes_blocks(implementation: str | None) -> bool:
    """Return whether attention reads a mask in blocks, and adds nothing to scores: flex attention does."""
    return "flex" in str(implementation)


@torch.compiler.assume_constant_result
def require_flash_options(implementation: str, dropout: float, window: int | None) -> None:
    """Raise a `ValueError` unless a flash kernel drops weights and knows windows, if they are asked for.

    FlashAttention 3 drops none. transformers leaves out silently what a kernel does not take.
    """
    for name, value, remedy in (
        ("dropout_p", dropout or None, "set attention_dropout=0"),
        ("window_size", window, "use full attention"),
    ):
        if value is not None and name not in flash_options(implementation):
            raise ValueError(
                f"attn_implementation={implementation!r} takes no {name}, which is {value} here: {remedy} or "
                "attn_implementation='sdpa'"
            )


@cache
def flash_options(implementation: str) -> tuple[str, ...]:
    return tuple(inspect.signature(lazy_import_flash_attention(implementation)[0][1]).parameters)


def require_architecture(config: PreTrainedConfig) -> None:
    """Raise a `ValueError` unless what a `TercetConfig` adds to a `NeuralConfig` describes a Transformer."""
    for name in ("intermediate_size", "num_hidden_layers", "max_position_embeddings"):
        require_at_least(1, name, getattr(config, name))
    require_at_least(0, "position_offset", config.position_offset)
    require_heads(config.hidden_size, config.head_dim, config.num_attention_heads, config.num_key_value_heads)
    require_layer_types(config)
    require_choice("attention_score", config.attention_score, SCORES)
    require_choice("attention_gate", config.attention_gate, GATES)
    require_at_least(4, "relative_attention_num_buckets", config.relative_attention_num_buckets)
    if config.relative_attention_max_distance <= config.relative_attention_num_buckets // 2:
        raise ValueError(
            f"relative_attention_max_distance is {config.relative_attention_max_distance}: choose more than "
            f"half of relative_attention_num_buckets ({config.relative_attention_num_buckets}), because each "
            "smaller distance has a bucket of its own"
        )
    POSITIONS[config.position_embedding_type].require(config)
    if not config.first_norm and not (config.norm_placement == "pre" and config.embedding_norm):
        raise ValueError(
            "first_norm=False needs norm_placement='pre' and embedding_norm=True: the first sub-layer reads "
            "the normalized embeddings"
        )


def require_implementation(config: PreTrainedConfig, implementation: str | None) -> None:
    """Raise a `ValueError` if attention needs a score, bias or mask that an implementation does not take."""
    if not config.has_dot_products and implementation not in (None, "eager", "sdpa"):
        raise ValueError(
            f"attn_implementation='{implementation}' computes dot products, which attention_score="
            f"{config.attention_score!r} is not: choose attn_implementation='sdpa' or 'eager'"
        )
    if config.has_score_bias and (takes_bounds(implementation) or takes_blocks(implementation)):
        raise ValueError(
            f"attn_implementation='{implementation}' does not support the bias of position_embedding_type="
            f"{config.position_embedding_type!r}: choose attn_implementation='sdpa' or 'eager'"
        )
    adding = [kind for kind in dict.fromkeys(config.types_of_layers) if PATTERNS[kind].adds_to_scores]
    if adding and takes_blocks(implementation):
        raise ValueError(
            f"attn_implementation='{implementation}' takes masks alone, but layers of type {adding[0]!r} add "
            "to scores: choose attn_implementation='sdpa' or 'eager'"
        )
    needing = [kind for kind in dict.fromkeys(config.types_of_layers) if not PATTERNS[kind].is_window]
    if needing and takes_bounds(implementation):
        raise ValueError(
            f"attn_implementation='{implementation}' takes no mask, as layers of type {needing[0]!r} "
            "need one: choose attn_implementation='sdpa' or 'eager'"
        )


def require_decoder(config: PreTrainedConfig) -> None:
    """Raise a `ValueError` unless the `decoder_` fields describe a Transformer that reads an encoder."""
    require_at_least(1, "decoder_num_hidden_layers", config.decoder_num_hidden_layers)
    require_at_least(1, "decoder_intermediate_size", config.decoder_intermediate_size)
    require_heads(
        config.hidden_size,
        config.decoder_head_dim,
        config.decoder_num_attention_heads,
        config.decoder_num_key_value_heads,
        prefix="decoder_",
    )
    require_layer_types(config, prefix="decoder_")
    if config.norm_placement == "parallel":
        raise ValueError("norm_placement='parallel' does not support cross-attention: choose 'pre' or 'post'")


def equal_share(hidden_size: int, num_heads: int) -> int | None:
    """Divide the model's width among heads; `None` if that leaves a rest."""
    return None if num_heads < 1 or hidden_size % num_heads else hidden_size // num_heads


def require_heads(
    hidden_size: int, head_dim: int | None, num_heads: int, num_key_value_heads: int, prefix: str = ""
) -> None:
    """Raise a `ValueError` unless heads have a width, and key-value heads divide the heads."""
    if head_dim is None:
        raise ValueError(
            f"hidden_size ({hidden_size}) must be a multiple of {prefix}num_attention_heads ({num_heads}): "
            f"choose one of {divisors(hidden_size)}, or give {prefix}head_dim"
        )
    require_at_least(1, f"{prefix}num_attention_heads", num_heads)
    require_at_least(1, f"{prefix}head_dim", head_dim)
    if num_key_value_heads < 1 or num_heads % num_key_value_heads:
        raise ValueError(
            f"{prefix}num_attention_heads ({num_heads}) must be a multiple of {prefix}num_key_value_heads "
            f"({num_key_value_heads}): choose one of {divisors(num_heads)}"
        )


def divisors(number: int) -> str:
    """List what divides `number` and could be a number of heads, for an error message."""
    return ", ".join(str(divisor) for divisor in range(1, min(number, 256) + 1) if number % divisor == 0)


OWN_HEADS = {"q_proj": "colwise", "k_proj": "colwise", "v_proj": "colwise", "o_proj": "rowwise"}
"""Each device attends with its own heads."""

ALL_HEADS = {
    "q_proj": "colwise_gather_output",
    "k_proj": "colwise_gather_output",
    "v_proj": "colwise_gather_output",
    "o_proj": "rowwise_split_input",
}
"""Each device computes a part of the projections, and attends with all heads."""

OWN_HEAD_NORMS = dict.fromkeys(("q_norm", "k_norm"), "replicated_with_grad_allreduce")
"""Each device normalizes its own heads by the same weights, whose gradients are those of all heads."""

FEED_FORWARD_PLANS = {
    "plain": {"up_proj": "colwise", "down_proj": "rowwise"},
    "gated": {"gate_proj": "colwise", "up_proj": "colwise", "down_proj": "rowwise"},
}
"""Each device computes a part of the inner width, by `feed_forward_type`."""

BLOCK_BY_BLOCK = {"layers.*": "free_full_weight"}
"""What FSDP gathers together, and frees after use. The rest stays gathered, because the loss reads the weight
of the LM head, and so that of the token vectors it may be tied to, without calling the head."""


def plan_of_stack(config: PreTrainedConfig, *, has_cross_attention: bool = False) -> dict[str, str]:
    """Plan how the linear layers of a stack, described by a `TercetConfig`, are split among devices."""
    attention = attention_plan(config)
    sublayers = {"self_attention": attention, "feed_forward": FEED_FORWARD_PLANS[config.feed_forward_type]}
    if has_cross_attention:
        sublayers["cross_attention"] = attention
    return {"embeddings.embed_tokens": "embedding_rowwise"} | {
        f"layers.*.{sublayer}.{module}": style
        for sublayer, styles in sublayers.items()
        for module, style in styles.items()
    }


def attention_plan(config: PreTrainedConfig) -> dict[str, str]:
    """Plan how attention is split: by heads, unless a module has the bias or the parameters of all scores.

    Gates are split as queries are, whose heads they belong to.
    """
    norms = OWN_HEAD_NORMS if config.use_qk_norm else {}
    scores_of_all = {name for name, score in SCORES.items() if score.has_parameters}
    has_one_module = config.has_score_bias or config.attention_score in scores_of_all
    plan = ALL_HEADS if has_one_module else OWN_HEADS | norms
    return plan if config.attention_gate == "none" else plan | {"gate.g_proj": plan["q_proj"]}


def with_prefix(prefix: str, plan: dict[str, str]) -> dict[str, str]:
    """Name what a plan names for the model that holds the stack as `prefix`."""
    return {f"{prefix}.{name}": style for name, style in plan.items()}


if TYPE_CHECKING:
    PositionEmbeddingType = str
else:
    PositionEmbeddingType = Literal[tuple(POSITIONS)]

NAMED_IF_SET = {
    "rope_parameters": None,
    "attention_score": "scaled_dot_product",
    "attention_gate": "none",
    "zero_init_residual": False,
    "attention_stride": 128,
    "attention_block_size": 64,
    "attention_window_blocks": 2,
    "attention_global_tokens": 64,
    "attention_random_blocks": 3,
    "attention_random_seed": 0,
    "answer_head": "linear",
    "attention_out_dropout": None,
    "final_dropout": 0.0,
}
"""Fields that are saved only where they have another value than this."""

DECODER_FIELDS = (
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "layer_types",
)
"""What a sequence-to-sequence decoder may have otherwise than its encoder, as `decoder_<name>`."""


@strict
class TercetConfig(RotaryConfig, NeuralConfig):
    """The fields that every Transformer has. Abstract: use one of the classes below."""

    base_model_fsdp_plan = BLOCK_BY_BLOCK

    intermediate_size: int = 2048
    """Width inside the feed-forward network."""
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    num_key_value_heads: int | None = None
    """Fewer than `num_attention_heads` shares keys between heads (Ainslie et al., 2023); `None`: as many."""
    head_dim: int | None = None
    """Width of one attention head; `None`: an equal share of `hidden_size`, which is filled in."""

    layer_types: list[str] | None = None
    """For each layer its attention pattern: "full_attention" or "sliding_attention", as transformers says, or
    another of `attention/patterns.py`; `None`: all slide if there is a `sliding_window`, otherwise none."""
    sliding_window: int | None = None
    """What a token attends to in sliding layers: see `attention/patterns.py`. In an encoder, this many tokens
    on either side, and itself; in a decoder this many, itself and those just before it."""
    attention_stride: int = NAMED_IF_SET["attention_stride"]
    """Stride of strided layers: a token attends to the last so many, and before these to one in so
    many."""
    attention_block_size: int = NAMED_IF_SET["attention_block_size"]
    """Tokens of a block, of big bird layers: see `attention/big_bird.py`."""
    attention_window_blocks: int = NAMED_IF_SET["attention_window_blocks"]
    """Blocks near a token's own that it attends to in big bird layers, on one side, its own included."""
    attention_global_tokens: int = NAMED_IF_SET["attention_global_tokens"]
    """Number of first tokens that attend to all in big bird layers, and to which all attend."""
    attention_random_blocks: int = NAMED_IF_SET["attention_random_blocks"]
    """Earlier blocks that each block of big bird layers draws; 0: none."""
    attention_random_seed: int = NAMED_IF_SET["attention_random_seed"]
    """What the drawn blocks depend on, besides the number of the block that draws."""

    max_position_embeddings: int = 1024
    """Longest sequence: the rows of a table of learned positions, otherwise what data should respect."""
    position_embedding_type: PositionEmbeddingType = "rotary"
    position_offset: int = 0
    """Rows that a table of learned positions skips before position 0 (2 in BART)."""
    relative_attention_num_buckets: int = 32
    """Buckets of distances in a relative bias (T5); an encoder has half of them for each direction."""
    relative_attention_max_distance: int = 128
    """Distance from which on all share a bucket."""

    norm_placement: Literal["pre", "post", "parallel"] = "pre"
    """Before each sub-layer (and once at the end), or after each residual sum as in 2017; or before, where
    attention and feed-forward network read the same state (Black et al., 2022, section 2.1.2)."""
    first_norm: bool = True
    """Normalize what the first sub-layer reads; ModernBERT does not, as its embeddings have just been (Warner
    et al., 2024, section 2.1.1)."""

    feed_forward_type: Literal["gated", "plain"] = "gated"
    """With a gate (Shazeer, 2020), or two linear layers as in 2017."""
    attention_bias: bool = False
    """Whether the projections to queries, keys and values have biases."""
    attention_out_bias: bool | None = None
    """Whether attention's last projection has a bias; `None`: as `attention_bias` says."""
    attention_score: str = NAMED_IF_SET["attention_score"]
    """How queries and keys are compared: see `attention/scores.py`."""
    use_qk_norm: bool = False
    """Normalize each head of queries and keys (Henry et al., 2020; Dehghani et al., 2023, section 2)."""
    attention_gate: str = NAMED_IF_SET["attention_gate"]
    """What scales the values that heads have read, before the last projection: see `attention/scores.py`."""
    zero_init_residual: bool = NAMED_IF_SET["zero_init_residual"]
    """Initialize the last layer of every sub-layer to zero, so that it adds nothing to the residual stream at
    first (Zhang et al., 2019, "Fixup initialization", section 3). Loading is not affected."""

    answer_head: Literal["linear", "feed_forward"] = NAMED_IF_SET["answer_head"]
    """What scores tokens as the start and the end of an answer: see `heads/classification.py`."""

    attention_dropout: float | int = 0.0
    """On the attention weights."""
    attention_out_dropout: float | int | None = NAMED_IF_SET["attention_out_dropout"]
    """On what attention passes on; `None`: `dropout`."""
    activation_dropout: float | int = 0.0
    """Inside the feed-forward network."""
    final_dropout: float | int = NAMED_IF_SET["final_dropout"]
    """Behind the last norm (T5)."""

    def __post_init__(self, **kwargs: Any):
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.head_dim is None:
            self.head_dim = equal_share(self.hidden_size, self.num_attention_heads)
        if self.attention_out_bias is None:
            self.attention_out_bias = self.attention_bias
        super().__post_init__(**kwargs)
        # Last, because transformers 5.17 adds to a plan what others call their token vectors.
        self.base_model_tp_plan = self.tensor_parallel_plan()  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def has_score_bias(self) -> bool:
        """Whether positions add a bias to the scores of attention."""
        return POSITIONS[self.position_embedding_type].bias is not NoPositions.bias

    @property
    def has_dot_products(self) -> bool:
        """Whether scores of attention are dot products, as most kernels compute them."""
        return SCORES[self.attention_score].is_dot_product

    @property
    def types_of_layers(self) -> list[str]:
        """Type of each layer, whether `layer_types` names them or not."""
        kind = "full_attention" if self.sliding_window is None else "sliding_attention"
        return self.layer_types or [kind] * self.num_hidden_layers

    def tensor_parallel_plan(self) -> dict[str, str]:
        """Plan how the weights of the model without head are split among devices."""
        return plan_of_stack(self)

    def require_own_fields(self) -> None:
        require_architecture(self)

    def validate_layer_type(self) -> None:
        """Leave the check to `require_layer_types`: transformers knows its own names alone."""

    def to_dict(self) -> dict[str, Any]:
        given = super().to_dict()
        return {name: value for name, value in given.items() if not is_unset(name, value, NAMED_IF_SET)}


SHARED_FIELDS = tuple(
    name for kind in (RotaryConfig, NeuralConfig, TercetConfig) for name in kind.__annotations__
)
"""The fields that every Transformer has."""


@strict
class TercetEncoderConfig(TercetConfig):
    """Encoder: every position sees every other. Sequences get labels from BERT's head.

    Example:
        >>> from tercet import TercetEncoderConfig
        >>> TercetEncoderConfig(hidden_size=64, num_attention_heads=4).head_dim
        16
    """

    model_type = "tercet_encoder"

    type_vocab_size: int = 2
    classifier_pooling: ClassifierPooling = "first"
    classifier_act: ClassifierActivation | None = "tanh"
    classifier_bias: bool = True


@strict
class TercetDecoderConfig(TercetConfig):
    """Decoder: a position sees only itself and what came before. Sequences get labels from GPT-2's head."""

    model_type = "tercet_decoder"
    keys_to_ignore_at_inference = ["cache", "past_key_values"]

    use_cache: bool = True


@strict
class TercetSeq2SeqConfig(TercetConfig):
    """Sequence-to-sequence: an encoder, and a decoder that reads it.

    The plain fields describe both stacks. What is given as well describes the decoder alone, under the prefix
    by which transformers' caches find its depth: `decoder_num_hidden_layers`, `decoder_num_attention_heads`,
    `decoder_num_key_value_heads`, `decoder_head_dim`, `decoder_intermediate_size`, `decoder_layer_types`.
    Sequences get labels from BART's head.

    Example:
        >>> from tercet import TercetSeq2SeqConfig
        >>> TercetSeq2SeqConfig(num_hidden_layers=3).decoder_num_hidden_layers
        3
    """

    model_type = "tercet_seq2seq"
    keys_to_ignore_at_inference = ["cache", "past_key_values"]
    base_model_fsdp_plan = with_prefix("encoder", BLOCK_BY_BLOCK) | with_prefix("decoder", BLOCK_BY_BLOCK)

    decoder_num_hidden_layers: int | None = None
    decoder_num_attention_heads: int | None = None
    decoder_num_key_value_heads: int | None = None
    decoder_head_dim: int | None = None
    decoder_intermediate_size: int | None = None
    decoder_layer_types: list[str] | None = None
    decoder_start_token_id: int | None = None
    """First token that the decoder reads; `None`: the padding token, as in T5 and Marian."""
    share_encoder_decoder_embeddings: bool | None = None
    """Source and target have one table of token vectors; `None`: they do if `tie_word_embeddings`, which
    says whether the LM head is the target's table."""
    classifier_act: ClassifierActivation | None = "tanh"
    classifier_bias: bool = True
    is_encoder_decoder: bool = True
    use_cache: bool = True

    def __post_init__(self, **kwargs: Any):
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.decoder_num_key_value_heads is None and self.decoder_num_attention_heads is not None:
            self.decoder_num_key_value_heads = self.decoder_num_attention_heads
        for name in DECODER_FIELDS:
            if getattr(self, f"decoder_{name}") is None:
                setattr(self, f"decoder_{name}", getattr(self, name))
        if self.decoder_head_dim is None:
            self.decoder_head_dim = equal_share(self.hidden_size, self.decoder_num_attention_heads or 0)
        if self.decoder_start_token_id is None:
            self.decoder_start_token_id = self.pad_token_id
        super().__post_init__(**kwargs)

    def require_own_fields(self) -> None:
        super().require_own_fields()
        require_decoder(self)

    @property
    def has_one_table(self) -> bool:
        """Whether source and target share their token vectors."""
        shared = self.share_encoder_decoder_embeddings
        return self.tie_word_embeddings if shared is None else shared

    def tensor_parallel_plan(self) -> dict[str, str]:
        of_decoder = plan_of_stack(self, has_cross_attention=True)
        return with_prefix("encoder", plan_of_stack(self)) | with_prefix("decoder", of_decoder)

    def encoder_config(self) -> TercetEncoderConfig:
        """Describe the encoder alone, with the attention kernel of the whole."""
        config = TercetEncoderConfig(**self._shared_fields())
        config._attn_implementation = self._attn_implementation
        return config

    def decoder_config(self) -> TercetDecoderConfig:
        """Describe the decoder alone, with the attention kernel of the whole."""
        fields = self._shared_fields() | {name: getattr(self, f"decoder_{name}") for name in DECODER_FIELDS}
        config = TercetDecoderConfig(**fields)
        config._attn_implementation = self._attn_implementation
        return config

    def _shared_fields(self) -> dict[str, Any]:
        return {name: copy.deepcopy(getattr(self, name)) for name in SHARED_FIELDS}
