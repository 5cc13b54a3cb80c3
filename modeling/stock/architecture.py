"""A stock architecture, as data: which of its options and weights are which of ours.

Every fact stands once and is read in both directions. To export, a configuration of ours is written in stock
options and read back: the architecture fits only if no field that matters has changed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig, PreTrainedModel

from ...configs.messages import first_line
from ..attention.patterns import PATTERNS
from ..configuration_neural import OF_CROSS_ENCODERS
from ..configuration_rotary import LAYER_TYPES
from ..configuration_tercet import DECODER_FIELDS, SHARED_FIELDS, TercetConfig, TercetSeq2SeqConfig
from .weights import Dropped, Table, Via, below, match_name


class MisfitError(ValueError):
    """A stock architecture cannot be exactly a model of ours.

    Args:
        model_type: The architecture.
        reasons: In what they differ.
    """

    def __init__(self, model_type: str, reasons: list[str]):
        super().__init__(f"{model_type} cannot represent this model: {'; '.join(reasons)}")
        self.reasons = reasons


@dataclass(frozen=True)
class Field:
    """A field of ours that is no single option of a stock configuration.

    Args:
        to_ours: Its value, by the stock configuration.
        to_stock: The stock options that say it, by our configuration; none if those of other fields do.
    """

    to_ours: Callable[[Any], Any]
    to_stock: Callable[[Any], Mapping[str, Any]] = lambda config: {}


def agreeing(ours: str, *options: str) -> Field:
    """Describe a field of ours for which the stock configuration has several options, which must agree."""

    def to_ours(stock: Any) -> Any:
        values = {name: getattr(stock, name) for name in options}
        if len({*values.values()}) > 1:
            raise ValueError(f"ours has one {ours} for {values}")
        return values[options[0]]

    return Field(to_ours, lambda config: dict.fromkeys(options, getattr(config, ours)))


@dataclass(frozen=True)
class Counterpart:
    """A stock model with its head, and the model of ours that equals it.

    Args:
        stock: Name of its class in transformers.
        head: The weights that are not the base model's, by their full names.
        ours: Name of our class; before `named`, only if it ends in another way.
        prefix: Where the base model is in the stock one; by default where most of its architecture have it.
        fields: Our fields that the head reads, and the stock option that each is there. With `eos_token_id`
            among them, texts must end in that token, and have no other.
        values: Our fields that such a head has the same in every model.
        required: Stock options with which alone its head is ours.
        arguments: With what, beside the configuration, its class builds no more than ours has.
    """

    stock: str
    head: Table = field(default_factory=dict)
    ours: str = ""
    prefix: str | None = None
    fields: Mapping[str, "str | Field"] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    required: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reads(self) -> list[str]:
        """Our fields that its head computes with."""
        names = [name for name in (*self.fields, *self.values) if not name.endswith("dropout")]
        return [*names, "answer_head"] if self.ours.endswith("ForQuestionAnswering") else names

    def our_fields(self, stock: PreTrainedConfig) -> dict[str, Any]:
        """Read from a stock configuration those of our fields that are as they are because of the head."""
        return {**to_ours(self.fields, stock), **self.values}


def named(stock: str, ours: str, *models: Counterpart) -> tuple[Counterpart, ...]:
    """Complete the names of classes, of which the models have the endings only."""
    return tuple(
        replace(model, stock=f"{stock}{model.stock}", ours=f"{ours}{model.ours or model.stock}")
        for model in models
    )


@dataclass(frozen=True)
class Architecture:
    """Everything that is to be known about a stock architecture.

    Args:
        model_type: What transformers calls it.
        config: Our configuration class.
        fields: Our fields, and the stock option that each is.
        fixed: Our fields that are the same in every such model.
        required: Stock options that ours can have in one way only.
        weights: The base model's.
        counterparts: Models with their heads, the base model first.
        prefix: Where a stock model with a head has the base model.
        by_weights: Our fields that only the weights of a stock model tell, whatever its configuration says.
    """

    model_type: str
    config: type[TercetConfig]
    fields: Mapping[str, str | Field]
    fixed: Mapping[str, Any]
    required: Mapping[str, Any]
    weights: Table
    counterparts: tuple[Counterpart, ...]
    prefix: str
    by_weights: Mapping[str, Callable[[PreTrainedModel], Any]] = field(default_factory=dict)

    def our_config(
        self, stock: PreTrainedConfig, counterpart: Counterpart | None = None, **values: Any
    ) -> TercetConfig:
        """Build our configuration of a stock model, and of its head if that matters; `values` come first."""
        counterpart = counterpart or self.base
        is_decoder = self.config.model_type == "tercet_decoder"
        always = {**self.required, **({"is_causal": True} if is_decoder else {})}
        unsupported = [
            f"{name}={getattr(stock, name)!r} ({owner} can only be {required!r})"
            for owner, options in (("ours", always), (counterpart.ours, counterpart.required))
            for name, required in options.items()
            if getattr(stock, name, required) != required
        ]
        if unsupported:
            raise ValueError(
                f"Tercet does not support these options of {self.model_type}: {'; '.join(unsupported)}"
            )
        return self._in_our_words(stock, counterpart, values)

    def stock_config(self, config: TercetConfig, counterpart: Counterpart | None = None) -> PreTrainedConfig:
        """Build the stock configuration of a model of ours, with its head if that matters.

        Raises:
            MisfitError: If that cannot be done exactly, with every reason.
        """
        if type(config) is not self.config:
            raise ValueError(f"{self.model_type} does not correspond to a {type(config).__name__}")
        counterpart = counterpart or self.base
        required = {**self.required, **counterpart.required}
        options = required | to_stock(self.fields, config) | to_stock(counterpart.fields, config)
        try:
            stock = transformers.CONFIG_MAPPING[self.model_type](**options | ids(config), **labels(config))
        except (StrictDataclassError, ValueError) as error:
            raise MisfitError(self.model_type, [first_line(error)]) from error
        except KeyError as error:  # how transformers 5.17 refuses a kind of layer
            raise MisfitError(self.model_type, [f"its configuration does not know {error}"]) from error
        told = {name: getattr(config, name) for name in self.by_weights}
        brought_back = self._in_our_words(stock, counterpart, told)
        wanted, offered = (
            in_effect(each) | {name: getattr(each, name) for name in counterpart.reads}
            for each in (config, brought_back)
        )
        reasons = differences(wanted, offered)
        reasons += differences({name: getattr(stock, name) for name in required}, required)
        if "eos_token_id" in counterpart.fields and config.eos_token_id is None:
            reasons.append("eos_token_id is None, and its head reads where that token stands")
        if reasons:
            raise MisfitError(self.model_type, reasons)
        return stock

    def _in_our_words(
        self, stock: PreTrainedConfig, counterpart: Counterpart, values: Mapping[str, Any]
    ) -> TercetConfig:
        try:
            fields: dict[str, Any] = {**to_ours(self.fields, stock), **self.fixed}
            # Those of labels whatever the head is, so that any model may get that head.
            of_labels = self.labelling.our_fields(stock).items()
            fields |= {name: value for name, value in of_labels if name.startswith("classifier")}
            fields |= {"pad_token_id": None} | ids(stock) | labels(stock)
            return self.config(**{**fields, **counterpart.our_fields(stock), **values})
        except (StrictDataclassError, ValueError) as error:
            raise ValueError(f"this {self.model_type} cannot be imported: {first_line(error)}") from error

    @property
    def base(self) -> Counterpart:
        return self.counterparts[0]

    @property
    def labelling(self) -> Counterpart:
        """The model that labels sequences, or the base model if there is none."""
        found = (each for each in self.counterparts if each.ours.endswith("ForSequenceClassification"))
        return next(found, self.base)

    def counterpart(self, stock: str | None = None, ours: str | None = None) -> Counterpart:
        """Find a model by either of its names."""
        for counterpart in self.counterparts:
            if stock in (None, counterpart.stock) and ours in (None, counterpart.ours):
                return counterpart
        known = ", ".join(each.stock if stock else each.ours for each in self.counterparts)
        raise ValueError(
            f"{stock or ours} has no counterpart among the {self.model_type} models: supported are {known}"
        )

    def table(self, counterpart: Counterpart) -> Table:
        if counterpart is self.base:
            return self.weights
        return {**below(self.prefix_in(counterpart), "model.", self.weights), **counterpart.head}

    def prefix_in(self, counterpart: Counterpart) -> str:
        """Return where a model with its head has the base model."""
        return self.prefix if counterpart.prefix is None else counterpart.prefix

    def entry_of(self, name: str, counterpart: Counterpart) -> str | Via | Dropped | None:
        """Return the entry of a tensor of the base model, whatever head there is; `None` for any other."""
        own = name.removeprefix(self.prefix_in(counterpart))
        return next((entry for pattern, entry in self.weights.items() if match_name(pattern, own)), None)


def same(*names: str) -> dict[str, str | Field]:
    """List fields that a stock configuration calls as ours does."""
    return dict(zip(names, names, strict=True))


USUAL = same(
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "tie_word_embeddings",
    "initializer_range",
)
"""Fields of most architectures, most of which call them so."""
PLAIN_LAYERS = {"norm_type": "layer_norm", "norm_bias": True, "feed_forward_type": "plain"}
BIASES = {"attention_bias": True, "mlp_bias": True}


def projections(stock: str, ours: str, names: str) -> dict[str, str]:
    """List projections of attention by what stands before their names on both sides, and the stock names."""
    return {f"{stock}{name}.*": f"{ours}{x}_proj.*" for x, name in zip("qkvo", names.split(), strict=True)}


def to_ours(fields: Mapping[str, str | Field], stock: PreTrainedConfig) -> dict[str, Any]:
    """Read our fields from a stock configuration."""
    return {
        name: theirs.to_ours(stock) if isinstance(theirs, Field) else getattr(stock, theirs)
        for name, theirs in fields.items()
    }


def to_stock(fields: Mapping[str, str | Field], config: TercetConfig) -> dict[str, Any]:
    """Write our fields as stock options."""
    options: dict[str, Any] = {}
    for name, theirs in fields.items():
        options |= theirs.to_stock(config) if isinstance(theirs, Field) else {theirs: getattr(config, name)}
    return options


def ids(config: Any) -> dict[str, Any]:
    """Collect the ids of special tokens, which have the same names everywhere; texts may have no ends."""
    ends = {name: getattr(config, name, None) for name in ("bos_token_id", "eos_token_id")}
    others = {name: getattr(config, name, None) for name in ("pad_token_id", "decoder_start_token_id")}
    return ends | {name: value for name, value in others.items() if value is not None}


def labels(config: Any) -> dict[str, Any]:
    """Collect the names of labels, and what sentence-transformers makes of their scores."""
    told = {"id2label": config.id2label, "label2id": config.label2id, "problem_type": config.problem_type}
    return told | {name: getattr(config, name) for name in OF_CROSS_ENCODERS if hasattr(config, name)}


def differences(wanted: Mapping[str, Any], offered: Mapping[str, Any]) -> list[str]:
    """List the fields in which the offered configuration is not the wanted one.

    A field that has an effect in one of them only is not named: what gives it the effect differs, too.
    """
    return [
        f"{name} is {value!r}, and would be {offered[name]!r}"
        for name, value in wanted.items()
        if name in offered and offered[name] != value
    ]


def in_effect(config: TercetConfig) -> dict[str, Any]:
    """Keep the fields that change what a model computes, once others have their values."""
    layer_types = {"layer_types": config.types_of_layers}
    names = [*SHARED_FIELDS]
    if isinstance(config, TercetSeq2SeqConfig):
        layer_types["decoder_layer_types"] = config.decoder_config().types_of_layers
        names += [f"decoder_{name}" for name in DECODER_FIELDS]
    kinds = {kind for types in layer_types.values() for kind in types}
    patterns = {PATTERNS[kind] for kind in kinds}

    ineffective = {"initializer_range", "zero_init_residual", "pad_token_id", "bos_token_id", "eos_token_id"}
    ineffective |= {"rope_parameters"}  # whose effect is told below
    ineffective |= {"answer_head"}  # which matters to models with that head: see `Counterpart.reads`
    ineffective |= {name for name in SHARED_FIELDS if name.startswith("classifier")}
    ineffective |= {name for name in SHARED_FIELDS if name.endswith("dropout")}
    ineffective |= {name for pattern in set(PATTERNS.values()) - patterns for name in pattern.fields}
    ineffective -= {name for pattern in patterns for name in pattern.fields}
    if config.position_embedding_type != "learned":
        ineffective |= {"position_offset"}
        # Wavelengths that grow with the text do so from there.
        if not config.has_dynamic_rotations:
            ineffective |= {"max_position_embeddings"}
    if config.position_embedding_type != "relative_bias":
        ineffective |= {"relative_attention_num_buckets", "relative_attention_max_distance"}
    values = {name: getattr(config, name) for name in names} | layer_types
    for kind in {kind if kind in LAYER_TYPES else LAYER_TYPES[0] for kind in kinds}:
        values |= {f"{name} of {kind}": value for name, value in config.rotation_of(kind).items()}
    if isinstance(config, TercetSeq2SeqConfig):
        values["share_encoder_decoder_embeddings"] = config.has_one_table
    values["embedding_size"] = config.embedding_width
    return {name: value for name, value in values.items() if name not in ineffective}
