"""Growth that keeps the function: a larger model that computes what a smaller one does, as a warm start.

    wider     every channel, head and neuron is copied, and what reads the copies divides its weights among
              them (Chen et al., 2016: Net2Net; Chen et al., 2022: bert2BERT, section 3.2)
    deeper    behind a layer stands a copy of it whose last projections are zero, so that it adds nothing

Copies of one channel have equal gradients: an optimizer keeps them equal, and the wider model learns no more
than the narrow one. Dropout parts them in time. `noise` parts them at once, by weights of what reads them
that differ and add up to the same: the function stays, the gradients differ.
"""

import re
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..modeling import TercetConfig, TercetPreTrainedModel, TercetSeq2SeqConfig
from .channel_copies import Copies, copied_heads, repeated, widened
from .growth_requirements import layer_origins, require_growth

STACK = re.compile(r"^model\.(?:encoder\.|decoder\.|)")
LAYER = re.compile(r"^layers\.(\d+)\.")

LAST_PROJECTIONS = ("o_proj.", "down_proj.")
"""What adds a sub-layer's result to the stream."""


class Rule(NamedTuple):
    """How a tensor grows along its axes, by names of kinds of channels; `None`: not at all.

    Args:
        rows: Of the first axis, which writes.
        columns: Of the second.
        reads: Whether the second axis reads channels, and divides its weights; a table has vectors there.
    """

    rows: str | None
    columns: str | None = None
    reads: bool = True


RULES = {
    r"embeddings\.embed_tokens\.weight": Rule(None, "embedding", reads=False),
    r"embeddings\.token_types\.weight": Rule(None, "embedding", reads=False),
    r"embeddings\.positions\.embed_positions\.weight": Rule(None, "embedding", reads=False),
    r"embeddings\.norm\.(weight|bias)": Rule("embedding"),
    r"embeddings\.projection\.weight": Rule("hidden", "embedding"),
    r"embeddings\.projection\.bias": Rule("hidden"),
    r"relative_bias\.table\.weight": Rule(None, "heads", reads=False),
    r"(\w+_norm|norm)\.(weight|bias)": Rule("hidden"),
    r"(self|cross)_attention\.q_proj\.weight": Rule("queries", "hidden"),
    r"(self|cross)_attention\.[kv]_proj\.weight": Rule("keys", "hidden"),
    r"(self|cross)_attention\.q_proj\.bias": Rule("queries"),
    r"(self|cross)_attention\.[kv]_proj\.bias": Rule("keys"),
    r"(self|cross)_attention\.o_proj\.weight": Rule("hidden", "queries"),
    r"(self|cross)_attention\.o_proj\.bias": Rule("hidden"),
    r"(self|cross)_attention\.[qk]_norm\.weight": Rule(None),
    r"(self|cross)_attention\.gate\.g_proj\.weight": Rule("gates", "hidden"),
    r"(self|cross)_attention\.gate\.g_proj\.bias": Rule("gates"),
    r"feed_forward\.(up|gate)_proj\.weight": Rule("inner", "hidden"),
    r"feed_forward\.(up|gate)_proj\.bias": Rule("inner"),
    r"feed_forward\.down_proj\.weight": Rule("hidden", "inner"),
    r"feed_forward\.down_proj\.bias": Rule("hidden"),
    r"transform\.dense\.weight": Rule("head", "hidden"),
    r"transform\.dense\.bias": Rule("head"),
    r"transform\.norm\.(weight|bias)": Rule("head"),
    r"lm_head\.weight": Rule(None, "head"),
    r"lm_head\.bias": Rule(None),
    r"(next_sentence|replaced_token)_head\.dense\.weight": Rule("hidden", "hidden"),
    r"(next_sentence|replaced_token)_head\.dense\.bias": Rule("hidden"),
    r"(next_sentence_head\.classifier|replaced_token_head\.out_proj)\.weight": Rule(None, "hidden"),
    r"(next_sentence_head\.classifier|replaced_token_head\.out_proj)\.bias": Rule(None),
}
"""Name of a tensor, without stack and layer -> how it grows."""


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
        >>> from tercet.interop.growth import grow
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
    """Give a larger model the function of a smaller one; name the parameters that the other does not have.

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
    """Copy the channels of a tensor, by the rule for its name.

    Raises:
        ValueError: There is none.
    """
    rule = next((rule for name, rule in RULES.items() if re.fullmatch(name, place.key)), None)
    copies = copies_of(place.config, place.of)
    if rule is None:
        raise ValueError(
            f"there is no rule by which {place.source} could grow and keep its function: choose a model "
            "without it"
        )
    if rule.rows is not None:
        tensor = copies[rule.rows].written(tensor, 0)
    if rule.columns is None:
        return tensor
    columns = copies[rule.columns]
    return columns.read(tensor, noise) if rule.reads else columns.written(tensor, 1)


def copies_of(config: TercetConfig, of: TercetConfig) -> dict[str, Copies]:
    """Say what each kind of channel copies."""
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
    """Give the factors by which what is no sum over copies has to be corrected.

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
