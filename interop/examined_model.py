"""A model to be examined, with what loading it has revealed."""

from dataclasses import dataclass
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import Any, Literal, cast

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

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


@dataclass(frozen=True)
class ExaminedModel:
    """A model and what it was loaded from.

    Args:
        name: The folder, or the name on the Hub, as the user gave it.
        model: In evaluation mode and float32.
        tokenizer: None where the folder has none.
        loading: What `from_pretrained` reports: `missing_keys`, `unexpected_keys`, `mismatched_keys`.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    loading: dict[str, Any]

    @property
    def config(self) -> PreTrainedConfig:
        """The model's configuration."""
        return self.model.config

    @property
    def rows(self) -> int:
        """How many tokens the table of embeddings knows."""
        return len(self.embeddings)

    @property
    def embeddings(self) -> Tensor:
        """The table of embeddings, (V, C)."""
        return cast(nn.Embedding, self.model.get_input_embeddings()).weight

    @property
    def member(self) -> Member:
        """Which of the three Transformers it is, by what it can do."""
        if self.config.is_encoder_decoder:
            return "seq2seq"
        if self.config.model_type == "tercet_decoder":  # whose language model also reads in both directions
            return "encoder" if self.is_one_of("AutoModelForMaskedLM") else "decoder"
        heads = classes_of(self.config)
        is_causal = "AutoModelForCausalLM" in heads and "AutoModelForMaskedLM" not in heads
        return "decoder" if is_causal or self.model.can_generate() else "encoder"

    def is_one_of(self, *auto_classes: str) -> bool:
        """Tell whether one of these Auto classes loads the model."""
        heads = classes_of(self.config)
        return any(type(self.model).__name__ in heads.get(auto_class, ()) for auto_class in auto_classes)

    @property
    def reads_twice(self) -> bool:
        """Whether encoder and decoder read the same text, for a task; otherwise the decoder has a target."""
        return self.member == "seq2seq" and self.is_one_of(
            "AutoModelForSequenceClassification",
            "AutoModelForTokenClassification",
            "AutoModelForQuestionAnswering",
            "AutoModelForMultipleChoice",
        )

    @cached_property
    def reloaded(self) -> PreTrainedModel:
        """The same model, saved to a temporary folder and loaded from there."""
        with TemporaryDirectory() as folder:
            self.model.save_pretrained(folder)
            return type(self.model).from_pretrained(folder, dtype=torch.float32).eval()


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


def ids_of(owner: object, name: str) -> set[int]:
    """Give the ids that a configuration or tokenizer has for a role: none, one, or several."""
    value = getattr(owner, name, None)
    return set(value) if isinstance(value, list) else set() if value is None else {value}
