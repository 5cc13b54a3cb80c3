"""Which configurations and models there are, and their registration with transformers' Auto classes."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForNextSentencePrediction,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)
from transformers.models.auto import modeling_auto

from .compatibility import keep_registered_in
from .configuration_neural import NeuralConfig
from .pretrained import NeuralPreTrainedModel

NAME_TABLES = {
    AutoModel: "MODEL_MAPPING_NAMES",
    AutoModelForPreTraining: "MODEL_FOR_PRETRAINING_MAPPING_NAMES",
    AutoModelForCausalLM: "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    AutoModelForMaskedLM: "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    AutoModelForSeq2SeqLM: "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    AutoModelForSequenceClassification: "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    AutoModelForTokenClassification: "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
    AutoModelForQuestionAnswering: "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
    AutoModelForNextSentencePrediction: "MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES",
    AutoModelForMultipleChoice: "MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES",
}
"""The tables of class names in transformers by which Trainer shifts labels under label smoothing, pipelines
accept a model, and tests know what it is for."""


MEMBERS = ("encoder", "decoder", "seq2seq")
"""The Transformers, each registered by a module in `members/`; all other members are recurrent."""

CONFIGURATIONS: list[type[NeuralConfig]] = []
"""The configurations of the members that are imported."""

AUTO_CLASSES: dict[type, tuple[type[NeuralPreTrainedModel], ...]] = dict.fromkeys(NAME_TABLES, ())
"""Which of their models each Auto class can load."""


def register(
    configurations: Iterable[type[NeuralConfig]],
    auto_classes: Mapping[type, Sequence[type[NeuralPreTrainedModel]]],
) -> None:
    """Register members with transformers.

    Args:
        configurations: Configurations of the members.
        auto_classes: Auto class -> the models that it can load; of a configuration's, the usual one first.
    """
    for auto_class, models in auto_classes.items():
        AUTO_CLASSES[auto_class] += tuple(models)
        names = getattr(modeling_auto, NAME_TABLES[auto_class])
        for model in models:
            assert model.config_class is not None
            names.setdefault(model.config_class.model_type, model.__name__)
    for config in configurations:
        CONFIGURATIONS.append(config)
        AutoConfig.register(config.model_type, config)
        for auto_class in auto_classes:
            if models := models_of(config, auto_class):
                # Of several, transformers takes the one that a configuration names, else the first.
                auto_class.register(config, models[0] if len(models) == 1 else models)


def models_of(kind: type[NeuralConfig], auto_class: type) -> tuple[type[NeuralPreTrainedModel], ...]:
    """Return the models of a kind of configuration that an Auto class can load, the usual one first."""
    return tuple(model for model in AUTO_CLASSES[auto_class] if model.config_class is kind)


def configuration_of(model_type: str) -> type[NeuralConfig] | None:
    """Find a configuration of ours by its type; its member is imported."""
    if model_type.startswith("tercet_"):
        import_member(model_type)
    return {known.model_type: known for known in CONFIGURATIONS}.get(model_type)


def import_member(name: str) -> ModuleType:
    """Import the member that a type or a class belongs to: it registers all its models."""
    kind = name.lower().removeprefix("tercet").removeprefix("_")
    member = next((f"members.{each}" for each in MEMBERS if kind.startswith(each)), "recurrent")
    return import_module(f".{member}", __package__)


class OfferedModels(dict[Any, Any]):
    """The models that an Auto class has besides transformers' own; ours are imported on demand."""

    def __contains__(self, configuration: object) -> bool:
        if isinstance(configuration, type) and issubclass(configuration, NeuralConfig):
            configuration_of(configuration.model_type)
        return super().__contains__(configuration)


if not all(keep_registered_in(OfferedModels, each) for each in NAME_TABLES):
    for _member in (*MEMBERS, "recurrent"):
        import_member(_member)
