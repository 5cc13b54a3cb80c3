"""What the configuration of a Transformer must be: one clear line for each field that cannot be as it is."""

from transformers import PreTrainedConfig

from .attention.gates import GATES
from .attention.implementations import takes_blocks, takes_bounds
from .attention.patterns import PATTERNS, require_layer_types
from .attention.scores import SCORES
from .configuration_neural import require_at_least, require_choice, require_positive, require_probability
from .layers.positions import POSITIONS
from .layers.rope_scaling import build_rope_scaling


def require_architecture(config: PreTrainedConfig) -> None:
    """Raise a `ValueError` unless what a `TercetConfig` adds to a `NeuralConfig` describes a Transformer."""
    for name in ("intermediate_size", "num_hidden_layers", "max_position_embeddings"):
        require_at_least(1, name, getattr(config, name))
    require_at_least(0, "position_offset", config.position_offset)
    for name in ("attention_dropout", "activation_dropout"):
        require_probability(name, getattr(config, name))
    require_heads(config.hidden_size, config.head_dim, config.num_attention_heads, config.num_key_value_heads)
    require_layer_types(config)
    require_choice("attention_score", config.attention_score, SCORES)
    require_choice("attention_gate", config.attention_gate, GATES)
    require_positions(config)
    require_first_norm(config)


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


def require_positions(config: PreTrainedConfig) -> None:
    """Raise a `ValueError` unless positions have what they are made of."""
    for name in ("rope_theta", "local_rope_theta"):
        if (value := getattr(config, name)) is not None:
            require_positive(name, value)
    require_buckets(config.relative_attention_num_buckets, config.relative_attention_max_distance)
    POSITIONS[config.position_embedding_type].require(config)
    config.update_from_rope_parameters()
    # What cannot be built is refused by its builder.
    build_rope_scaling(config.rope_scaling, config.max_position_embeddings)


def require_first_norm(config: PreTrainedConfig) -> None:
    """Raise a `ValueError` if the first norm is left out where nothing else normalizes."""
    if not config.first_norm and not (config.norm_placement == "pre" and config.embedding_norm):
        raise ValueError(
            "first_norm=False needs norm_placement='pre' and embedding_norm=True: the first sub-layer reads "
            "the normalized embeddings"
        )


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


def divisors(number: int) -> str:
    """List what divides `number` and could be a number of heads, for an error message."""
    return ", ".join(str(divisor) for divisor in range(1, min(number, 256) + 1) if number % divisor == 0)
