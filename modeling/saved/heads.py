"""Which Auto class of transformers loads a model with its head, and which of the three Transformers it is."""

from typing import Any, Literal

import transformers
from transformers import PreTrainedConfig

Member = Literal["encoder", "decoder", "seq2seq"]

MAPPINGS = {
    "AutoModelForMaskedLM": transformers.MODEL_FOR_MASKED_LM_MAPPING,
    "AutoModelForCausalLM": transformers.MODEL_FOR_CAUSAL_LM_MAPPING,
    "AutoModelForSeq2SeqLM": transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    "AutoModelForPreTraining": transformers.MODEL_FOR_PRETRAINING_MAPPING,
    "AutoModelForSequenceClassification": transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    "AutoModelForTokenClassification": transformers.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    "AutoModelForQuestionAnswering": transformers.MODEL_FOR_QUESTION_ANSWERING_MAPPING,
    "AutoModelForMultipleChoice": transformers.MODEL_FOR_MULTIPLE_CHOICE_MAPPING,
    "AutoModelForNextSentencePrediction": transformers.MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING,
    "AutoModel": transformers.MODEL_MAPPING,
}
"""The Auto classes whose models can be examined, and the models that each has for a configuration."""


def classes_of(config: PreTrainedConfig) -> dict[str, set[str]]:
    """Name the models that each Auto class has for a configuration, be they known or brought along."""
    brought = getattr(config, "auto_map", None) or {}
    heads = {}
    for auto_class, mapping in MAPPINGS.items():
        known: Any = mapping.get(type(config), ())
        names = {model.__name__ for model in (known if isinstance(known, tuple) else (known,))}
        if auto_class in brought:
            names.add(brought[auto_class].rpartition(".")[2])
        if names:
            heads[auto_class] = names
    return heads


def loader_of(config: PreTrainedConfig) -> str:
    """Name the Auto class that loads the architecture which a configuration names, by default the base."""
    architecture = (config.architectures or [None])[0]
    heads = classes_of(config)
    if architecture is None and "AutoModel" in heads:
        return "AutoModel"
    for auto_class, names in heads.items():
        if architecture in names:
            return auto_class
    raise ValueError(
        f"architectures of config.json names {architecture}, which is not supported: use a model that is "
        f"loaded by one of {', '.join(MAPPINGS)} loads"
    )
