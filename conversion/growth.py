"""Growth that keeps the function: a larger model that computes what a smaller one does, as a warm start.

    wider     every channel, head and neuron is copied, and what reads the copies divides its weights among
              them (Chen et al., 2016: Net2Net, section 2.2; Chen et al., 2022: bert2BERT, section 3.2)
    deeper    behind a layer stands a copy of it whose last projections are zero, so that it adds nothing

Copies of one channel have equal gradients: an optimizer keeps them equal, and the wider model learns no more
than the narrow one. Dropout parts them in time. `noise` parts them at once, by weights of what reads them
that differ and add up to the same: the function stays, the gradients differ.

Everything that is not a size stays as it is. A size grows such that the result is exact: norms need equally
many copies of every channel, attention as many of every head.

Shapes: n channels of the wide layer, m of the narrow one.
"""

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..modeling import TercetConfig, TercetPreTrainedModel, TercetSeq2SeqConfig
from ..modeling.configuration_tercet import SHARED_FIELDS
from ..modeling.layers.positions import POSITIONS


@dataclass(frozen=True)
class Copies:
    """Which channel of a narrow layer each channel of a wide one copies.

    Args:
        origins: (n,), each from 0 to m - 1, and every one of these among them.
    """

    origins: Tensor

    @property
    def counts(self) -> Tensor:
        """How many copies there are of what each channel copies, (n,)."""
        return torch.bincount(self.origins)[self.origins]

    def written(self, tensor: Tensor, axis: int) -> Tensor:
        """Write the same into all copies: `tensor` with n instead of m entries along an axis."""
        return tensor.index_select(axis, self.origins)

    def read(self, weight: Tensor, noise: float = 0.0) -> Tensor:
        """Divide the weights (o, m) of what reads the channels among the copies: (o, n).

        Args:
            weight: Of a linear layer that reads m channels.
            noise: Standard deviation of what is added to the weights of copies, as a part of theirs. It adds
                up to zero over the copies of a channel, so that the sum stays what it was.
        """
        divided = self.written(weight, 1) / self.counts
        if not noise or len(self.origins) == weight.shape[1]:
            return divided
        drawn = torch.randn_like(divided) * (noise * divided.std())
        sums = torch.zeros_like(weight).index_add(1, self.origins, drawn)
        return divided + drawn - self.written(sums, 1) / self.counts


def repeated(num_channels: int, of: int) -> Copies:
    """Repeat `of` channels one after another until there are `num_channels`."""
    return Copies(torch.arange(num_channels) % of)


def copied_heads(
    num_heads: int, num_key_value_heads: int, of_heads: int, of_key_value_heads: int
) -> tuple[Copies, Copies]:
    """Copy heads of queries, and those of keys and values, such that each pair that meets has met before.

    Heads of keys are repeated. The heads of queries that read the copies of one are copies of those that have
    read it, in turn. If there are no more heads of queries, these stay where they are, since biases may be
    theirs by number (ALiBi): then the copies of a head of keys stand beside each other.

    Args:
        num_heads: Of the wide layer.
        num_key_value_heads: Of the wide layer; a multiple of `of_key_value_heads`.
        of_heads: Of the narrow layer, of which `num_heads` is a multiple.
        of_key_value_heads: Of the narrow layer.
    """
    keys = repeated(num_key_value_heads, of_key_value_heads)
    if num_heads == of_heads:
        keys = Copies(keys.origins.sort().values)
    per_key, of_per_key = num_heads // num_key_value_heads, of_heads // of_key_value_heads
    readers = [0] * of_key_value_heads
    queries = []
    for head in range(num_heads):
        key = int(keys.origins[head // per_key])
        queries.append(key * of_per_key + readers[key] % of_per_key)
        readers[key] += 1
    return Copies(torch.tensor(queries)), keys


def widened(heads: Copies, head_dim: int) -> Copies:
    """Copy all channels of heads."""
    return Copies((heads.origins[:, None] * head_dim + torch.arange(head_dim)).flatten())


SIZES = (
    *("hidden_size", "embedding_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "layer_types", "max_position_embeddings"),
)
"""Fields that may grow, each by the rules below."""

FREE = (
    *("dropout", "embedding_dropout", "attention_dropout", "attention_out_dropout", "activation_dropout"),
    *(
        "final_dropout",
        "embedding_input_dropout",
        "initializer_range",
        "zero_init_residual",
        "rope_parameters",
    ),
    *("pad_token_id", "bos_token_id", "eos_token_id"),
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
    """Return whether token vectors are projected to the width of the model, because theirs is another."""
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
    """List of which of `of` layers each of `depth` layers is a copy, in order and evenly.

    The first copy of a layer takes its place; the others come behind it and add nothing at first.

    Example:
        >>> from tercet.conversion.growth import layer_origins
        >>> layer_origins(5, 3)
        [0, 0, 1, 1, 2]
    """
    return [layer * of // depth for layer in range(depth)]


STACK = re.compile(r"^model\.(?:encoder\.|decoder\.|)")
LAYER = re.compile(r"^layers\.(\d+)\.")

LAST_PROJECTIONS = ("o_proj.", "down_proj.")
"""What adds a sub-layer's result to the stream."""


class Rule(NamedTuple):
    """How the tensors of a module grow along their axes, by names of kinds of channels; `None`: not at all.

    Args:
        rows: Of the first axis, which writes.
        columns: Of the second, if there is one.
        reads: Whether the second axis reads channels, and divides its weights; a table has vectors there.
    """

    rows: str | None
    columns: str | None = None
    reads: bool = True


RULES = {
    r"embeddings\.(embed_tokens|token_types|positions\.embed_positions)": Rule(
        None, "embedding", reads=False
    ),
    r"embeddings\.norm": Rule("embedding"),
    r"embeddings\.projection": Rule("hidden", "embedding"),
    r"relative_bias\.table": Rule(None, "heads", reads=False),
    r"\w+_norm|norm": Rule("hidden"),
    r"(self|cross)_attention\.q_proj": Rule("queries", "hidden"),
    r"(self|cross)_attention\.[kv]_proj": Rule("keys", "hidden"),
    r"(self|cross)_attention\.o_proj": Rule("hidden", "queries"),
    r"(self|cross)_attention\.[qk]_norm": Rule(None),
    r"(self|cross)_attention\.gate\.g_proj": Rule("gates", "hidden"),
    r"feed_forward\.(up|gate)_proj": Rule("inner", "hidden"),
    r"feed_forward\.down_proj": Rule("hidden", "inner"),
    r"transform\.dense": Rule("head", "hidden"),
    r"transform\.norm": Rule("head"),
    r"lm_head": Rule(None, "head"),
    r"(next_sentence|replaced_token)_head\.dense": Rule("hidden", "hidden"),
    r"next_sentence_head\.classifier|replaced_token_head\.out_proj": Rule(None, "hidden"),
}
"""Name of a module, without stack and layer -> how its weight grows, and its bias along the first axis."""


def grow(
    source: TercetPreTrainedModel, config: TercetConfig, *, noise: float = 0.0, seed: int = 0
) -> TercetPreTrainedModel:
    """Build a larger model that gives the logits of a smaller one.

    Args:
        source: The smaller model, with its head.
        config: Of the larger one.
        noise: Of copies' weights, as a part of their standard deviation; 0 leaves copies equal.
        seed: Of the noise, and of what the smaller model does not have.

    Raises:
        ValueError: The larger model cannot compute the same; the field is named.

    Example:
        >>> from tercet import TercetDecoderConfig, TercetDecoderForCausalLM
        >>> from tercet.conversion.growth import grow
        >>> small = TercetDecoderForCausalLM(TercetDecoderConfig(hidden_size=32, num_attention_heads=2))
        >>> config = TercetDecoderConfig(hidden_size=64, num_attention_heads=4, num_hidden_layers=14)
        >>> grow(small, config).config.num_hidden_layers
        14
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model_class: Any = type(source)
        model = model_class(config).to(source.dtype)
        grow_into(model, source, noise=noise)
    return model.eval()


@torch.no_grad()
def grow_into(
    model: TercetPreTrainedModel, source: TercetPreTrainedModel, *, noise: float = 0.0
) -> list[str]:
    """Write the function of a smaller model into a larger one; return the parameters that the other lacks.

    Args:
        model: Its weights are replaced.
        source: Of the same member.
        noise: As in `grow`.

    Raises:
        ValueError: As in `require_growth`, or there is no rule for a tensor.
    """
    require_growth(model.config, source.config)
    if noise < 0:
        raise ValueError(f"noise is {noise}: choose 0 or more")
    prefix = "" if hasattr(source, "model") else "model."
    tensors = {f"{prefix}{name}": tensor for name, tensor in source.state_dict().items()}
    factors, fresh = head_factors(model, source), []
    for name, parameter in model.named_parameters():
        place = place_of(name, model.config, source.config)
        if place.source not in tensors:
            fresh += [] if place.is_new_layer else [name]
        elif place.is_new_layer and any(part in name for part in LAST_PROJECTIONS):
            parameter.zero_()
        else:
            grown = grow_tensor(tensors[place.source], place, noise) * factors.get(name, 1.0)
            parameter[: len(grown)] = grown  # a longer table of positions keeps its further rows
    return fresh


class Place(NamedTuple):
    """Where a parameter stands, and what it grows from.

    Args:
        key: Its name without stack and layer.
        source: The name of the smaller model's tensor.
        is_new_layer: Whether its layer is one that adds nothing at first.
        config: Of its stack.
        of: Of the smaller model's.
    """

    key: str
    source: str
    is_new_layer: bool
    config: TercetConfig
    of: TercetConfig


def place_of(name: str, config: TercetConfig, of: TercetConfig) -> Place:
    """Find the stack and the layer of a parameter."""
    found = STACK.match(name)
    stack = found.group() if found else ""
    if isinstance(config, TercetSeq2SeqConfig) and isinstance(of, TercetSeq2SeqConfig):
        is_encoder = stack == "model.encoder."
        config = config.encoder_config() if is_encoder else config.decoder_config()
        of = of.encoder_config() if is_encoder else of.decoder_config()
    key = name.removeprefix(stack)
    if (layer := LAYER.match(key)) is None:
        return Place(key, name, False, config, of)
    number, key = int(layer[1]), key[layer.end() :]
    origins = layer_origins(config.num_hidden_layers, of.num_hidden_layers)
    is_new = number > 0 and origins[number - 1] == origins[number]
    return Place(key, f"{stack}layers.{origins[number]}.{key}", is_new, config, of)


def grow_tensor(tensor: Tensor, place: Place, noise: float) -> Tensor:
    """Copy the channels of a tensor, by the rule for its module.

    Raises:
        ValueError: There is none.
    """
    module = re.sub(r"\.(weight|bias)$", "", place.key)
    rule = next((rule for name, rule in RULES.items() if re.fullmatch(name, module)), None)
    copies = copies_of(place.config, place.of)
    if rule is None:
        raise ValueError(
            f"there is no rule by which {place.source} could grow and keep its function: choose a model "
            "without it"
        )
    if rule.rows is not None:
        tensor = copies[rule.rows].written(tensor, 0)
    if rule.columns is None or tensor.dim() == 1:
        return tensor
    columns = copies[rule.columns]
    return columns.read(tensor, noise) if rule.reads else columns.written(tensor, 1)


def copies_of(config: TercetConfig, of: TercetConfig) -> dict[str, Copies]:
    """Return what each kind of channel copies."""
    counts = [
        count for each in (config, of) for count in (each.num_attention_heads, each.num_key_value_heads)
    ]
    assert config.head_dim is not None  # every configuration fills these in
    heads, key_heads = copied_heads(*(count or 0 for count in counts))
    queries = widened(heads, config.head_dim)
    return {
        "hidden": repeated(config.hidden_size, of.hidden_size),
        "embedding": repeated(config.embedding_width, of.embedding_width),
        "inner": repeated(config.intermediate_size, of.intermediate_size),
        "head": repeated(config.head_width, of.head_width),
        "heads": heads,
        "queries": queries,
        "gates": heads if config.attention_gate == "headwise" else queries,
        "keys": widened(key_heads, config.head_dim),
    }


def head_factors(model: TercetPreTrainedModel, source: TercetPreTrainedModel) -> dict[str, float]:
    """Return the factors by which what is no sum over copies has to be corrected.

    Token vectors are multiplied by the root of their width, if `scale_embedding`, and serve as a tied head
    undivided: what the head reads, a norm's result, is divided instead.
    """
    config, of = model.config, source.config
    copies = config.embedding_width // of.embedding_width
    scale = copies**-0.5 if config.scale_embedding else 1.0
    names = [name for name, _ in model.named_parameters()]
    factors = {name: scale for name in names if name.endswith("embed_tokens.weight")}
    if not config.tie_word_embeddings or not isinstance(getattr(model, "lm_head", None), nn.Linear):
        return factors
    share = 1 / (copies * scale)
    norm = final_norm(model)
    factors |= {name: share for name in names if name.rpartition(".")[0] == norm}
    if norm != "transform.norm":  # what else reads the states
        factors["next_sentence_head.dense.weight"] = 1 / share
    return factors


def final_norm(model: TercetPreTrainedModel) -> str:
    """Name the norm whose result the head reads."""
    config: Any = model.config
    if config.head_transform:
        return "transform.norm"
    is_pair = config.is_encoder_decoder
    stack = "model.decoder" if is_pair else "model"
    if config.norm_placement != "post":
        return f"{stack}.norm"
    depth = config.decoder_num_hidden_layers if is_pair else config.num_hidden_layers
    return f"{stack}.layers.{depth - 1}.feed_forward_norm"
