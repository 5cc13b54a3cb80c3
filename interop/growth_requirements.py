"""What a larger model must have in common with a smaller one to compute the same at first.

Everything that is not a size stays as it is. A size grows such that the result is exact: norms need equally
many copies of every channel, attention as many of every head, and new layers have to add nothing.
"""

from ..modeling import TercetConfig, TercetSeq2SeqConfig
from ..modeling.configuration_tercet import SHARED_FIELDS
from ..modeling.positions import POSITIONS

SIZES = (
    *("hidden_size", "embedding_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "layer_types", "max_position_embeddings"),
)
"""Fields that may grow, each by the rules below."""

FREE = (
    *("dropout", "attention_dropout", "activation_dropout", "initializer_range", "zero_init_residual"),
    *("rope_parameters", "pad_token_id", "bos_token_id", "eos_token_id"),
)
"""Fields that change no prediction, or follow from others."""


def require_growth(config: TercetConfig, source: TercetConfig) -> None:
    """Make sure that a model of one configuration can grow from one of another.

    Raises:
        ValueError: It cannot, with the field, its values and a remedy.
    """
    if type(config) is not type(source):
        raise ValueError(
            f"a {config.model_type} cannot grow from a {source.model_type}: read it as the other member with "
            "tercet convert first"
        )
    if isinstance(config, TercetSeq2SeqConfig) and isinstance(source, TercetSeq2SeqConfig):
        require_same(config, source, ("tie_word_embeddings", "has_one_table"))
        require_stack_growth(config.encoder_config(), source.encoder_config())
        require_stack_growth(config.decoder_config(), source.decoder_config(), "decoder_")
        return
    require_stack_growth(config, source)


def require_stack_growth(config: TercetConfig, source: TercetConfig, prefix: str = "") -> None:
    """Make sure that one stack can grow; the names of its fields in a whole model begin with `prefix`."""
    for each in (config, source):
        each.update_from_rope_parameters()
    require_multiple(config, source, "hidden_size", "norms need equally many copies of every channel")
    for name in ("num_attention_heads", "num_key_value_heads"):
        require_multiple(config, source, name, "attention needs equally many copies of every head", prefix)
    require_head_numbers(config, source, prefix)
    kept = [name for name in SHARED_FIELDS if name not in (*SIZES, *FREE)]
    require_same(config, source, [name for name in kept if not name.startswith("classifier_")])
    for name in ("intermediate_size", "num_hidden_layers", "max_position_embeddings"):
        if getattr(config, name) < getattr(source, name):
            raise ValueError(
                f"{prefix}{name} is {getattr(config, name)}, less than {getattr(source, name)} in the "
                "smaller model: choose as much or more"
            )
    require_embedding_growth(config, source)
    require_depth_growth(config, source, prefix)


def require_same(config: TercetConfig, source: TercetConfig, names: list[str] | tuple[str, ...]) -> None:
    """Raise a `ValueError` if a field that growth keeps has another value."""
    for name in names:
        ours, theirs = getattr(config, name), getattr(source, name)
        if ours != theirs:
            raise ValueError(
                f"{name} is {ours!r}, but {theirs!r} in the smaller model: growth keeps everything but "
                f"sizes; set it to {theirs!r} (in a recipe, under model.overrides)"
            )


def require_multiple(
    config: TercetConfig, source: TercetConfig, name: str, reason: str, prefix: str = ""
) -> None:
    """Raise a `ValueError` unless a size is a multiple of the smaller model's."""
    ours, theirs = getattr(config, name), getattr(source, name)
    if ours % theirs:
        nearest = max(1, round(ours / theirs)) * theirs
        raise ValueError(
            f"{prefix}{name} is {ours}, which is no multiple of {theirs}, that of the smaller model: "
            f"{reason}; choose {nearest}"
        )


def require_head_numbers(config: TercetConfig, source: TercetConfig, prefix: str) -> None:
    """Raise a `ValueError` if heads are to be copied whose bias follows from their number."""
    is_by_number = POSITIONS[config.position_embedding_type].bias.is_by_head_number
    if is_by_number and config.num_attention_heads != source.num_attention_heads:
        raise ValueError(
            f"{prefix}num_attention_heads is {config.num_attention_heads}, but {source.num_attention_heads} "
            f"in the smaller model: position_embedding_type={config.position_embedding_type!r} biases each "
            "head by its number, so that a copy would have another bias; keep the number, and head_dim"
        )


def require_embedding_growth(config: TercetConfig, source: TercetConfig) -> None:
    """Raise a `ValueError` unless token vectors and positions can be copied."""
    if has_projection(config) != has_projection(source):
        raise ValueError(
            f"embedding_size is {config.embedding_width} and hidden_size {config.hidden_size}, but "
            f"{source.embedding_width} and {source.hidden_size} in the smaller model: growth adds and "
            "removes no projection of token vectors; make the two sizes differ in both models, or in neither"
        )
    if has_projection(config):
        require_multiple(config, source, "embedding_size", "norms need equally many copies of every channel")
    if "sinusoidal" in config.position_embedding_type and config.embedding_width != source.embedding_width:
        raise ValueError(
            f"hidden_size is {config.hidden_size}, but {source.hidden_size} in the smaller model: sinusoidal "
            "positions are computed for a width, and others come out for a larger one; keep the width and "
            "let intermediate_size or num_hidden_layers grow"
        )
    longer = config.max_position_embeddings != source.max_position_embeddings
    if longer and config.rope_scaling is not None:
        raise ValueError(
            f"max_position_embeddings is {config.max_position_embeddings}, but "
            f"{source.max_position_embeddings} in the smaller model: rope_scaling depends on it; keep it"
        )


def has_projection(config: TercetConfig) -> bool:
    """Tell whether token vectors are projected to the width of the model, because theirs is another."""
    return config.embedding_width != config.hidden_size


def require_depth_growth(config: TercetConfig, source: TercetConfig, prefix: str) -> None:
    """Raise a `ValueError` if new layers would change the result, or old ones change their type."""
    depth, of = config.num_hidden_layers, source.num_hidden_layers
    if depth > of and config.norm_placement == "post":
        raise ValueError(
            f"{prefix}num_hidden_layers is {depth}, but {of} in the smaller model: with "
            "norm_placement='post' a new layer normalizes its input again, and therefore changes it, "
            f"whatever its weights are; keep {of} layers and let the widths grow"
        )
    for layer, origin in enumerate(layer_origins(depth, of)):
        is_new = layer > 0 and layer_origins(depth, of)[layer - 1] == origin
        ours, theirs = config.types_of_layers[layer], source.types_of_layers[origin]
        if not is_new and ours != theirs:
            raise ValueError(
                f"{prefix}layer_types says {ours!r} for layer {layer}, which takes over layer {origin} of "
                f"the smaller model, of type {theirs!r}: give it that type"
            )


def layer_origins(depth: int, of: int) -> list[int]:
    """Say of which of `of` layers each of `depth` layers is a copy, in order and evenly.

    The first copy of a layer takes its place; the others come behind it and add nothing at first.

    Example:
        >>> from tercet.interop.growth_requirements import layer_origins
        >>> layer_origins(5, 3)
        [0, 0, 1, 1, 2]
    """
    return [layer * of // depth for layer in range(depth)]
