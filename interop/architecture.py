"""A stock architecture, as data: which of its options and weights are which of ours.

Every fact stands once and is read in both directions. What a configuration of ours would be in another
house is built, and brought back: only if nothing that matters has changed on the way does it fit there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig, PreTrainedModel

from ..modeling.configuration_tercet import DECODER_FIELDS, TercetConfig, TercetSeq2SeqConfig
from .weights import Table, below


@dataclass(frozen=True)
class Field:
    """A field of ours that no single option of a stock configuration is.

    Args:
        to_ours: Its value, by the stock configuration.
        to_stock: The stock options that say it, by our configuration.
    """

    to_ours: Callable[[Any], Any]
    to_stock: Callable[[Any], Mapping[str, Any]]


def shifted(name: str, by: int) -> Field:
    """Describe a number that the stock configuration counts with so many more."""
    ours = name
    return Field(lambda stock: getattr(stock, name) - by, lambda config: {name: getattr(config, ours) + by})


@dataclass(frozen=True)
class Counterpart:
    """A stock model with its head, and which of ours it is.

    Args:
        stock: Name of its class in transformers.
        ours: Name of our class.
        head: The weights that are not the base model's, by their full names.
        prefix: Where the base model is in the stock one; by default where most of its architecture have it.
        values: Our fields that such a head has the same in every model.
        by_config: Our fields that such a head has by the stock configuration, in a way of its own. With
            `eos_token_id` among them, texts must end in that token, and have no other.
        arguments: With what, beside the configuration, its class builds no more than ours has.
    """

    stock: str
    ours: str
    head: Table = field(default_factory=dict)
    prefix: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    by_config: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def our_values(self, stock: PreTrainedConfig) -> dict[str, Any]:
        """Give our fields that are as they are because of the head."""
        return {**self.values, **{name: tell(stock) for name, tell in self.by_config.items()}}


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

    def our_config(self, stock: PreTrainedConfig, **values: Any) -> TercetConfig:
        """Describe a stock model in our words; `values` are fields that are known otherwise.

        Raises:
            ValueError: If it has an option that ours has not.
        """
        unsupported = [
            f"{name}={getattr(stock, name)!r} (ours can only be {required!r})"
            for name, required in self.required.items()
            if getattr(stock, name, required) != required
        ]
        if unsupported:
            raise ValueError(f"this {self.model_type} has what ours has not: {'; '.join(unsupported)}")
        fields = {
            name: theirs.to_ours(stock) if isinstance(theirs, Field) else getattr(stock, theirs)
            for name, theirs in self.fields.items()
        }
        try:
            no_pad = {"pad_token_id": None}  # unless the stock configuration names one
            return self.config(**{**fields, **self.fixed, **no_pad, **ids(stock), **labels(stock), **values})
        except (StrictDataclassError, ValueError) as error:
            reason = str(error).splitlines()[-1].strip()
            raise ValueError(f"this {self.model_type} is none of ours: {reason}") from error

    def stock_config(self, config: TercetConfig, counterpart: Counterpart | None = None) -> PreTrainedConfig:
        """Describe a model of ours in stock words, with its head if that matters.

        Raises:
            ValueError: If that cannot be done exactly, with every reason.
        """
        if type(config) is not self.config:
            raise ValueError(f"{self.model_type} is no counterpart of a {type(config).__name__}")
        options: dict[str, Any] = dict(self.required)
        for name, theirs in self.fields.items():
            if isinstance(theirs, Field):
                options |= theirs.to_stock(config)
            else:
                options[theirs] = getattr(config, name)
        try:
            stock = transformers.CONFIG_MAPPING[self.model_type](**options | ids(config), **labels(config))
        except (StrictDataclassError, ValueError) as error:
            reason = str(error).splitlines()[-1].strip()
            raise ValueError(f"{self.model_type} cannot be this model: {reason}") from error
        told = {name: getattr(config, name) for name in self.by_weights}
        reasons = differences(in_effect(config), in_effect(self.our_config(stock, **told)))
        if counterpart is not None:
            offered = counterpart.our_values(stock)
            reasons += differences({name: getattr(config, name) for name in offered}, offered)
        if reasons:
            raise ValueError(f"{self.model_type} cannot be this model: {'; '.join(reasons)}")
        return stock

    def counterpart(self, stock: str | None = None, ours: str | None = None) -> Counterpart:
        """Find a model by either of its names.

        Raises:
            ValueError: If there is none.
        """
        for counterpart in self.counterparts:
            if stock in (None, counterpart.stock) and ours in (None, counterpart.ours):
                return counterpart
        known = ", ".join(each.stock if stock else each.ours for each in self.counterparts)
        raise ValueError(
            f"{stock or ours} has no counterpart among the {self.model_type} models: known are {known}"
        )

    def table(self, counterpart: Counterpart) -> Table:
        """Give the weights of a model with its head."""
        if counterpart is self.counterparts[0]:
            return self.weights
        prefix = self.prefix if counterpart.prefix is None else counterpart.prefix
        return {**below(prefix, "model.", self.weights), **counterpart.head}


def ids(config: Any) -> dict[str, Any]:
    """Take the special ids along, which have the same names everywhere."""
    names = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    return {name: getattr(config, name) for name in names if getattr(config, name, None) is not None}


def labels(config: Any) -> dict[str, Any]:
    """Take the names of classes along."""
    return {"id2label": config.id2label, "label2id": config.label2id, "problem_type": config.problem_type}


def differences(wanted: Mapping[str, Any], offered: Mapping[str, Any]) -> list[str]:
    """Say in which fields a configuration that is offered is not the one that is wanted."""
    return [
        f"{name} is {value!r}, and would be {offered.get(name)!r}"
        for name, value in wanted.items()
        if offered.get(name) != value
    ]


def in_effect(config: TercetConfig) -> dict[str, Any]:
    """Keep the fields that change what a model computes, once others have their values."""
    ineffective = {"initializer_range", "pad_token_id", "bos_token_id", "eos_token_id"}
    ineffective |= {name for name in TercetConfig.__annotations__ if name.startswith("classifier")}
    if config.position_embedding_type != "rotary":
        ineffective |= {"rope_theta", "partial_rotary_factor", "rope_scaling", "local_rope_theta"}
    if config.position_embedding_type != "learned":
        ineffective |= {"position_offset", "max_position_embeddings"}
    if config.position_embedding_type != "relative_bias":
        ineffective |= {"relative_attention_num_buckets", "relative_attention_max_distance"}
    ineffective |= {name for name in TercetConfig.__annotations__ if name.endswith("dropout")}
    names = [*TercetConfig.__annotations__]
    if isinstance(config, TercetSeq2SeqConfig):
        names += [f"decoder_{name}" for name in DECODER_FIELDS]
    values = {name: getattr(config, name) for name in names if name not in ineffective}
    if isinstance(config, TercetSeq2SeqConfig):
        values["share_encoder_decoder_embeddings"] = config.has_one_table
    values["embedding_size"] = config.embedding_width
    return values
