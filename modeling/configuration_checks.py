"""What a configuration must be: one clear line for each field that cannot be as it is."""

from difflib import get_close_matches
from typing import Any

from transformers import GenerationConfig, PreTrainedConfig
from transformers.utils import logging

from .layer_types import require_layer_types
from .rope_scaling import build_rope_scaling

logger = logging.get_logger(__name__)

OF_TRANSFORMERS = {
    "attn_implementation",
    "auto_map",
    "custom_pipelines",
    "experts_implementation",
    "model_type",
    "name_or_path",
    "num_labels",
    "output_attentions",
    "per_layer_config",
    "quantization_config",
    "torch_dtype",
    "transformers_version",
    "use_return_dict",
}
"""What transformers and its predecessors may write into any configuration, beside fields."""


def tell_of_foreign(config: PreTrainedConfig, given: dict[str, Any]) -> None:
    """Warn of what is `given` beside the fields of `config`: it is kept, but changes nothing."""
    known = OF_TRANSFORMERS | {*GenerationConfig().to_dict()}
    foreign = [name for name in given if name not in known and not name.startswith("_")]
    for name in foreign:
        near = get_close_matches(name, vars(config), n=1)
        logger.warning_once(
            f"{type(config).__name__} has no field {name!r}: it is kept, but changes nothing"
            + (f" (did you mean {near[0]!r}?)" if near else "")
        )


def require_architecture(config: PreTrainedConfig) -> None:
    """Raise a `ValueError` unless the fields of any member, a `TercetConfig`, describe a Transformer."""
    for name in (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "max_position_embeddings",
    ):
        require_at_least(1, name, getattr(config, name))
    require_at_least(1, "embedding_size", config.embedding_width)
    for name in ("position_offset", "type_vocab_size"):
        require_at_least(0, name, getattr(config, name))
    for name in ("dropout", "attention_dropout", "activation_dropout"):
        require_probability(name, getattr(config, name))
    require_probability("classifier_dropout", config.classifier_dropout or 0)
    require_heads(config.hidden_size, config.head_dim, config.num_attention_heads, config.num_key_value_heads)
    require_layer_types(config.layer_types, config.num_hidden_layers, config.sliding_window)
    require_positions(config)
    require_norms(config)


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
    require_layer_types(
        config.decoder_layer_types, config.decoder_num_hidden_layers, config.sliding_window, prefix="decoder_"
    )
    if config.norm_placement == "parallel":
        raise ValueError("norm_placement='parallel' does not support cross-attention: choose 'pre' or 'post'")


def require_positions(config: PreTrainedConfig) -> None:
    """Raise a `ValueError` unless positions have what they are made of."""
    require_buckets(config.relative_attention_num_buckets, config.relative_attention_max_distance)
    if config.position_embedding_type == "rotary":
        require_pairs(config.head_dim, config.partial_rotary_factor, config.rotary_dim)
    config.settle_rotary()
    # What cannot be built is refused by its builder.
    build_rope_scaling(config.rope_scaling, config.max_position_embeddings)
    if config.position_embedding_type.startswith("sinusoidal"):
        name = "hidden_size" if config.embedding_size is None else "embedding_size"
        require_even(name, config.embedding_width)


def require_norms(config: PreTrainedConfig) -> None:
    """Raise a `ValueError` unless each norm that is configured, or left out, has its place."""
    if config.norm_bias and config.norm_type == "rms_norm":
        raise ValueError("norm_bias=True needs norm_type='layer_norm': a root-mean-square norm has no bias")
    if config.classifier_norm and config.classifier_act is None:
        raise ValueError(
            "classifier_norm=True needs the dense layer that it follows: set classifier_act, too"
        )
    if not config.first_norm and not (config.norm_placement == "pre" and config.embedding_norm):
        raise ValueError(
            "first_norm=False needs norm_placement='pre' and embedding_norm=True: the first sub-layer reads "
            "the normalized embeddings"
        )


def require_at_least(smallest: int, name: str, value: int) -> None:
    """Raise a `ValueError` if the field `name` is below `smallest`."""
    if value < smallest:
        raise ValueError(f"{name} is {value}: choose {smallest} or more")


def require_probability(name: str, value: float) -> None:
    """Raise a `ValueError` if the field `name` is not a probability below one."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} is {value}: choose a probability from 0 up to, but not including, 1")


def require_buckets(num_buckets: int, max_distance: int) -> None:
    """Raise a `ValueError` unless each direction has exact buckets of distances, and wide ones after them."""
    require_at_least(4, "relative_attention_num_buckets", num_buckets)
    if max_distance <= num_buckets // 2:
        raise ValueError(
            f"relative_attention_max_distance is {max_distance}: choose more than half of "
            f"relative_attention_num_buckets ({num_buckets}), because each smaller distance has a bucket of "
            f"its own"
        )


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


def require_pairs(head_dim: int, partial_rotary_factor: float, rotary_dim: int) -> None:
    """Raise a `ValueError` unless rotary positions have pairs of channels to turn."""
    if rotary_dim not in range(2, head_dim + 1, 2):
        raise ValueError(
            f"head_dim ({head_dim}) * partial_rotary_factor ({partial_rotary_factor}) is {rotary_dim}, but "
            f"rotary positions rotate pairs of a head's channels: choose an even head size and a factor of "
            f"at "
            "most 1, or another position_embedding_type"
        )


def require_even(name: str, width: int) -> None:
    """Raise a `ValueError` unless sinusoidal positions have pairs of channels."""
    if width % 2:
        raise ValueError(f"{name} ({width}) must be even, as sinusoidal positions pair a sine with a cosine")


def divisors(number: int) -> str:
    """List what divides `number` and could be a number of heads, for an error message."""
    return ", ".join(str(divisor) for divisor in range(1, min(number, 256) + 1) if number % divisor == 0)
