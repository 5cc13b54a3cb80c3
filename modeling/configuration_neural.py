"""The configuration of any neural member: vocabulary, embeddings, norms, heads and initial weights.

A Transformer has more, in `configuration_tercet.py`, and so may other members; nothing here is about
attention, positions or layers. Names are transformers' own wherever it has one.
"""

import math
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import GenerationConfig, PreTrainedConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)

OF_CROSS_ENCODERS = {"sentence_transformers", "sbert_ce_default_activation_function"}
"""How a configuration tells sentence-transformers what to make of scores, later versions and earlier ones."""

OF_TRANSFORMERS = OF_CROSS_ENCODERS | {
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
    "start_token_id",
    "torch_dtype",
    "transformers_version",
    "use_return_dict",
}
"""What transformers and its predecessors may write into any configuration, beside fields.

`start_token_id` is what `get_text_config` makes of `decoder_start_token_id`.
"""

OF_MODELS = {"auto_map", "architectures"}
"""What a configuration says of the models that it is saved with."""

MOST_LAYERS = 10_000
"""Layers of a stack, at most: ten times those of the deepest Transformers (Wang et al., 2022, "DeepNet")."""

Activation = Literal["relu", "relu2", "gelu", "gelu_new", "gelu_pytorch_tanh", "silu"]
ClassifierPooling = Literal["first", "last", "mean"]
ClassifierActivation = Literal["tanh", Activation]


NAMED_DROPOUTS: dict[str, Any] = {
    "embedding_dropout": None,
    "embedding_input_dropout": 0.0,
    "classifier_input_dropout": 0.0,
}
"""Fields that are saved only where they have another value than this."""


@strict
class NeuralConfig(PreTrainedConfig):
    """What every neural member has. Abstract: each member adds what it is made of.

    In transformers, too, are `vocab_size`, `tie_word_embeddings`, `initializer_range`, `pad_token_id`,
    `bos_token_id`, `eos_token_id` and, where a member has them, `num_hidden_layers`, `num_attention_heads`,
    `use_cache` and `is_encoder_decoder`.
    """

    reads_any_ids = True
    """Whether any sequence of ids is an input, as examinations make them up; not if ids spell words."""

    vocab_size: int = 32_000
    hidden_size: int = 768
    """Width of hidden states."""
    embedding_size: int | None = None
    """Width of token, segment and position vectors, projected to `hidden_size` (ELECTRA); `None`: equal."""
    type_vocab_size: int = 0
    """Kinds of segments (2 for sentence A and sentence B); 0 builds no token-type embedding."""
    scale_embedding: bool = False
    """Multiply token embeddings by the square root of their width (Vaswani et al., 2017, section 3.4)."""
    embedding_norm: bool = False
    """Normalize the sum of the embeddings, as BERT and BART do."""

    norm_type: Literal["rms_norm", "layer_norm"] = "rms_norm"
    """Kind of all norms."""
    norm_eps: float = 1e-6
    """What is added to a variance before its root is taken."""
    norm_bias: bool = False
    """Only a layer norm has one."""

    hidden_act: Activation = "silu"
    """In feed-forward networks, and in the LM head's dense layer; `relu2` is ReLU, squared (So et al., 2021,
    section 3)."""
    mlp_bias: bool = False
    """In the linear layers of both."""

    dropout: float | int = 0.0
    """On the embeddings, and on what every sub-layer or layer passes on."""
    embedding_dropout: float | int | None = NAMED_DROPOUTS["embedding_dropout"]
    """On the embeddings; `None`: `dropout`."""
    embedding_input_dropout: float | int = NAMED_DROPOUTS["embedding_input_dropout"]
    """Before the norm of the embeddings (BigBird)."""

    tie_word_embeddings: bool = True
    head_bias: bool = False
    """A bias for every vocabulary entry."""
    head_transform: bool = False
    """A dense layer, the activation and a norm before the vocabulary, as in BERT."""

    classifier_pooling: ClassifierPooling = "last"
    """What stands for a sequence that gets a label: its first or last token, or the mean of all."""
    classifier_act: ClassifierActivation | None = None
    """Activation of a dense layer between that and the labels; `None` builds no such layer."""
    classifier_norm: bool = False
    """A norm behind this layer; labels of single tokens then have both before them, too (ModernBERT)."""
    classifier_bias: bool = False
    """A bias in the first layer from a sequence to its labels; a second one always has it."""
    classifier_dropout: float | int | None = None
    """Before the last layer of a head of labels; `None`: `dropout`."""
    classifier_input_dropout: float | int = NAMED_DROPOUTS["classifier_input_dropout"]
    """Before the dense layer from a sequence to its labels (RoBERTa, ELECTRA, BART)."""

    initializer_range: float = 0.02
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs: Any):
        warn_of_unknown(self, kwargs)
        self.auto_map = kwargs.pop("auto_map", None) or {}
        """Auto classes whose code lies beside the weights: TRL reads it of every configuration."""
        super().__post_init__(**kwargs)
        self.architectures = self.architectures or []  # through which transformers looks for a model's class

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set, of `OF_MODELS` and `NAMED_DROPOUTS`, and all others."""
        fields = super().to_dict()
        return {
            name: value
            for name, value in fields.items()
            if (value or name not in OF_MODELS) and not is_unset(name, value, NAMED_DROPOUTS)
        }

    def dropout_of(self, place: str) -> float:
        """Return the field `place`, the dropout of one place; `None` there means `dropout`."""
        own = getattr(self, place)
        return self.dropout if own is None else own

    @property
    def embedding_width(self) -> int:
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @property
    def head_width(self) -> int:
        """Width of what the LM head reads: that of the token vectors, if it is tied to them."""
        return self.embedding_width if self.tie_word_embeddings else self.hidden_size

    def validate_architecture(self) -> None:
        """Refuse sizes that no member can have (run by `@strict` after construction)."""
        require_neural(self)
        self.require_own_fields()
        super().validate_architecture()

    def require_own_fields(self) -> None:
        """Raise a `ValueError` unless the fields that a member adds describe it."""


def is_unset(name: str, value: object, usual: dict[str, Any]) -> bool:
    return name in usual and value == usual[name]


def warn_of_unknown(config: PreTrainedConfig, given: dict[str, Any]) -> None:
    """Warn of names among those `given` that are no fields of `config`: they are kept, but change nothing."""
    known = OF_TRANSFORMERS | {*GenerationConfig().to_dict()}
    unknown = [name for name in given if name not in known and not name.startswith("_")]
    for name in unknown:
        near = get_close_matches(name, vars(config), n=1)
        logger.warning_once(
            f"{type(config).__name__} has no field {name!r}: it is kept, but changes nothing"
            + (f" (did you mean {near[0]!r}?)" if near else "")
        )


def require_neural(config: NeuralConfig) -> None:
    """Raise a `ValueError` unless embeddings, norms and heads can be built, from numbers."""
    for field in fields(config):
        require_finite(field.name, value := getattr(config, field.name))
        if field.name.endswith("num_hidden_layers") and (value or 0) > MOST_LAYERS:
            raise ValueError(f"{field.name} is {value:,}: choose {MOST_LAYERS:,} or fewer")
        if field.name.endswith("dropout") and not 0 <= (value or 0) < 1:
            raise ValueError(
                f"{field.name} is {value}: choose a probability from 0 up to, but not including, 1"
            )
    if not config.norm_eps > 0:
        raise ValueError(f"norm_eps is {config.norm_eps}: choose a number above 0")
    require_at_least(0, "initializer_range", config.initializer_range)
    for name in ("vocab_size", "hidden_size"):
        require_at_least(1, name, getattr(config, name))
    require_at_least(1, "embedding_size", config.embedding_width)
    require_at_least(0, "type_vocab_size", config.type_vocab_size)
    if config.norm_bias and config.norm_type == "rms_norm":
        raise ValueError("norm_bias=True needs norm_type='layer_norm': a root-mean-square norm has no bias")
    if config.classifier_norm and config.classifier_act is None:
        raise ValueError(
            "classifier_norm=True needs the dense layer that it follows: set classifier_act, too"
        )


def require_choice(name: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}: choose one of {', '.join(choices)}")


def require_finite(name: str, value: Any) -> None:
    """Raise a `ValueError` if the field `name` is no finite number, or has one that is not within it."""
    if isinstance(value, dict):
        for key, each in value.items():
            require_finite(f"{name}.{key}", each)
    elif isinstance(value, list | tuple):
        for each in value:
            require_finite(name, each)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} is {value}: choose a finite number")


def require_at_least(smallest: float, name: str, value: float) -> None:
    if value < smallest:
        raise ValueError(f"{name} is {value}: choose {smallest} or more")
