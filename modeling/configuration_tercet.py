"""Configurations of the family: one set of fields, and one final class per member.

The defaults describe a modern Transformer: rotary positions, root-mean-square norm before every sub-layer,
gated feed-forward network, no biases. The classics (Vaswani et al., 2017; BERT; GPT-2; BART) are other
values of the same fields, shipped as presets. Names are transformers' own wherever it has one.
"""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .layer_types import require_layer_types

PositionEmbeddingType = Literal["rotary", "learned", "sinusoidal", "sinusoidal_split", "none"]
Activation = Literal["relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "silu"]

DECODER_FIELDS = (
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "layer_types",
)
"""What a sequence-to-sequence decoder may have otherwise than its encoder, as `decoder_<name>`."""


@strict
class TercetConfig(PreTrainedConfig):
    """The fields every member shares. Abstract: use one of the classes below."""

    vocab_size: int = 32_000
    hidden_size: int = 768
    """Width of the residual stream."""
    intermediate_size: int = 2048
    """Width inside the feed-forward network."""
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    num_key_value_heads: int | None = None
    """Fewer than `num_attention_heads` shares keys between heads (Ainslie et al., 2023); `None`: as many."""

    layer_types: list[str] | None = None
    """For each layer "full_attention" or "sliding_attention", as transformers says; `None`: all are full."""
    sliding_window: int | None = None
    """What a token reads in sliding layers: see `layer_types.py`. In an encoder, this many tokens on either
    side, and itself; in a decoder this many, itself and those just before it."""

    max_position_embeddings: int = 1024
    """Longest sequence: the rows of a table of learned positions, otherwise what data should respect."""
    position_embedding_type: PositionEmbeddingType = "rotary"
    position_offset: int = 0
    """Rows that a table of learned positions skips before position 0 (2 in BART)."""
    rope_theta: float | int = 10_000.0
    """Base of the wavelengths of rotary positions."""
    local_rope_theta: float | int | None = None
    """The same in sliding layers; `None`: as in the others."""
    type_vocab_size: int = 0
    """Kinds of segments (2 for sentence A and sentence B); 0 builds no token-type embedding."""
    scale_embedding: bool = False
    """Multiply token embeddings by the square root of `hidden_size` (Vaswani et al., 2017, section 3.4)."""
    embedding_norm: bool = False
    """Normalize the sum of the embeddings, as BERT and BART do."""

    norm_type: Literal["rms_norm", "layer_norm"] = "rms_norm"
    norm_placement: Literal["pre", "post"] = "pre"
    """Before each sub-layer (and once at the end), or after each residual sum as in 2017."""
    first_norm: bool = True
    """Normalize what the first sub-layer reads; ModernBERT does not, as its embeddings have just been (Warner
    et al., 2024, section 2.1.1)."""
    norm_eps: float = 1e-6
    norm_bias: bool = False
    """Only a layer norm has one."""

    feed_forward_type: Literal["gated", "plain"] = "gated"
    hidden_act: Activation = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False

    dropout: float | int = 0.0
    """On the embeddings and on what every sub-layer adds to the residual stream."""
    attention_dropout: float | int = 0.0
    """On the attention weights."""
    activation_dropout: float | int = 0.0
    """Inside the feed-forward network."""

    tie_word_embeddings: bool = True
    head_bias: bool = False
    """A bias for every vocabulary entry."""
    head_transform: bool = False
    """A dense layer, the activation and a norm before the vocabulary, as in BERT."""

    initializer_range: float = 0.02
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs: Any):
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        super().__post_init__(**kwargs)

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def types_of_layers(self) -> list[str]:
        """Type of each layer, whether `layer_types` names them or not."""
        return self.layer_types or ["full_attention"] * self.num_hidden_layers

    def validate_architecture(self) -> None:
        """Refuse sizes that no Transformer can have (run by `@strict` after construction).

        Raises:
            ValueError: Naming the field, its value and a remedy.
        """
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "max_position_embeddings",
        ):
            require_at_least(1, name, getattr(self, name))
        for name in ("position_offset", "type_vocab_size"):
            require_at_least(0, name, getattr(self, name))
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            require_probability(name, getattr(self, name))
        require_heads(self.hidden_size, self.num_attention_heads, self.num_key_value_heads or 1)
        super().validate_architecture()  # divides by the heads
        require_layer_types(self.layer_types, self.num_hidden_layers, self.sliding_window)
        if self.position_embedding_type == "rotary" and self.head_dim % 2:
            raise ValueError(
                f"hidden_size / num_attention_heads is {self.head_dim}, but rotary positions turn pairs of "
                "channels: choose an even head width, or another position_embedding_type"
            )
        if self.position_embedding_type.startswith("sinusoidal") and self.hidden_size % 2:
            raise ValueError(
                f"hidden_size ({self.hidden_size}) must be even, as sinusoidal positions pair a sine "
                "with a cosine"
            )
        if self.norm_bias and self.norm_type == "rms_norm":
            raise ValueError(
                "norm_bias=True needs norm_type='layer_norm': a root-mean-square norm has no bias"
            )
        if not self.first_norm and not (self.norm_placement == "pre" and self.embedding_norm):
            raise ValueError(
                "first_norm=False needs norm_placement='pre' and embedding_norm=True: the first sub-layer "
                "reads what the embeddings' norm gives"
            )


@strict
class TercetEncoderConfig(TercetConfig):
    """Encoder: every position sees every other.

    Example:
        >>> from tercet import TercetEncoderConfig
        >>> TercetEncoderConfig(hidden_size=64, num_attention_heads=4).head_dim
        16
    """

    model_type = "tercet_encoder"

    type_vocab_size: int = 2


@strict
class TercetDecoderConfig(TercetConfig):
    """Decoder: a position sees only itself and what came before."""

    model_type = "tercet_decoder"
    keys_to_ignore_at_inference = ["past_key_values"]

    use_cache: bool = True


@strict
class TercetSeq2SeqConfig(TercetConfig):
    """Sequence-to-sequence: an encoder, and a decoder that reads it.

    The plain fields describe both stacks; a `decoder_` field given as well describes the decoder alone,
    under the prefix by which transformers' caches find the depth of a decoder.

    Example:
        >>> from tercet import TercetSeq2SeqConfig
        >>> TercetSeq2SeqConfig(num_hidden_layers=3).decoder_num_hidden_layers
        3
    """

    model_type = "tercet_seq2seq"
    keys_to_ignore_at_inference = ["past_key_values"]

    decoder_num_hidden_layers: int | None = None
    decoder_num_attention_heads: int | None = None
    decoder_num_key_value_heads: int | None = None
    decoder_intermediate_size: int | None = None
    decoder_layer_types: list[str] | None = None
    decoder_start_token_id: int | None = None
    """First token that the decoder reads; `None`: the padding token, as in T5 and Marian."""
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
        if self.decoder_start_token_id is None:
            self.decoder_start_token_id = self.pad_token_id
        super().__post_init__(**kwargs)

    def validate_architecture(self) -> None:
        """Check the encoder's sizes, then the decoder's.

        Raises:
            ValueError: Naming the field, its value and a remedy.
        """
        super().validate_architecture()
        require_at_least(1, "decoder_num_hidden_layers", self.decoder_num_hidden_layers or 0)
        require_at_least(1, "decoder_intermediate_size", self.decoder_intermediate_size or 0)
        heads, key_value_heads = self.decoder_num_attention_heads or 0, self.decoder_num_key_value_heads or 1
        require_heads(self.hidden_size, heads, key_value_heads, prefix="decoder_")
        layers = self.decoder_num_hidden_layers or 0
        require_layer_types(self.decoder_layer_types, layers, self.sliding_window, prefix="decoder_")

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
        return {name: getattr(self, name) for name in TercetConfig.__annotations__}


def require_at_least(smallest: int, name: str, value: int) -> None:
    """Raise a `ValueError` if the field `name` is below `smallest`."""
    if value < smallest:
        raise ValueError(f"{name} is {value}: choose {smallest} or more")


def require_probability(name: str, value: float) -> None:
    """Raise a `ValueError` if the field `name` is not a probability below one."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} is {value}: choose a probability from 0 up to, but not including, 1")


def require_heads(hidden_size: int, num_heads: int, num_key_value_heads: int, prefix: str = "") -> None:
    """Raise a `ValueError` unless heads divide the width, and key-value heads the heads."""
    if num_heads < 1 or hidden_size % num_heads:
        raise ValueError(
            f"hidden_size ({hidden_size}) must be a multiple of {prefix}num_attention_heads ({num_heads}): "
            f"choose one of {divisors(hidden_size)}"
        )
    if num_key_value_heads < 1 or num_heads % num_key_value_heads:
        raise ValueError(
            f"{prefix}num_attention_heads ({num_heads}) must be a multiple of {prefix}num_key_value_heads "
            f"({num_key_value_heads}): choose one of {divisors(num_heads)}"
        )


def divisors(number: int) -> str:
    """List what divides `number` and could be a number of heads, for an error message."""
    return ", ".join(str(divisor) for divisor in range(1, min(number, 256) + 1) if number % divisor == 0)
