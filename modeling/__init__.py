"""Configurations and models, on disk too: importing this package lets transformers' Auto classes find them.

A member is imported, and registered, when one of its models is asked for by its name, or by an Auto class.
"""

from typing import TYPE_CHECKING, Any

from .configuration_neural import NeuralConfig
from .configuration_tercet import TercetConfig, TercetDecoderConfig, TercetEncoderConfig, TercetSeq2SeqConfig
from .pretrained import NeuralLMHeadModel, NeuralPreTrainedModel, TercetPreTrainedModel
from .registry import import_member

if TYPE_CHECKING:
    from .members.decoder import (
        TercetDecoderForCausalLM,
        TercetDecoderForMaskedLM,
        TercetDecoderForMultipleChoice,
        TercetDecoderForQuestionAnswering,
        TercetDecoderForSentenceEmbedding,
        TercetDecoderForSequenceClassification,
        TercetDecoderForTokenClassification,
        TercetDecoderModel,
    )
    from .members.encoder import (
        TercetEncoderForMaskedLM,
        TercetEncoderForMultipleChoice,
        TercetEncoderForNextSentencePrediction,
        TercetEncoderForPreTraining,
        TercetEncoderForQuestionAnswering,
        TercetEncoderForReplacedTokenDetection,
        TercetEncoderForSentenceEmbedding,
        TercetEncoderForSequenceClassification,
        TercetEncoderForTokenClassification,
        TercetEncoderModel,
    )
    from .members.seq2seq import (
        TercetSeq2SeqForConditionalGeneration,
        TercetSeq2SeqForMultipleChoice,
        TercetSeq2SeqForQuestionAnswering,
        TercetSeq2SeqForSequenceClassification,
        TercetSeq2SeqForTokenClassification,
        TercetSeq2SeqModel,
    )
    from .recurrent import (
        TercetCharacterConfig,
        TercetCharacterLanguageModel,
        TercetCharacterModel,
        TercetElmoConfig,
        TercetElmoForLanguageModeling,
        TercetElmoForSequenceClassification,
        TercetElmoForTokenClassification,
        TercetElmoModel,
        TercetRecurrentSeq2SeqConfig,
        TercetRecurrentSeq2SeqForConditionalGeneration,
        TercetRecurrentSeq2SeqModel,
        TercetTaggerConfig,
        TercetTaggerForTokenClassification,
        TercetTaggerModel,
        TercetWordVectorsConfig,
        TercetWordVectorsModel,
    )


def __getattr__(name: str) -> Any:
    """Find a model, whose member is imported when one of its models is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_member(name), name)


__all__ = [
    "NeuralConfig",
    "NeuralLMHeadModel",
    "NeuralPreTrainedModel",
    "TercetCharacterConfig",
    "TercetCharacterLanguageModel",
    "TercetCharacterModel",
    "TercetConfig",
    "TercetDecoderConfig",
    "TercetDecoderForCausalLM",
    "TercetDecoderForMaskedLM",
    "TercetDecoderForMultipleChoice",
    "TercetDecoderForQuestionAnswering",
    "TercetDecoderForSentenceEmbedding",
    "TercetDecoderForSequenceClassification",
    "TercetDecoderForTokenClassification",
    "TercetDecoderModel",
    "TercetElmoConfig",
    "TercetElmoForLanguageModeling",
    "TercetElmoForSequenceClassification",
    "TercetElmoForTokenClassification",
    "TercetElmoModel",
    "TercetEncoderConfig",
    "TercetEncoderForMaskedLM",
    "TercetEncoderForMultipleChoice",
    "TercetEncoderForNextSentencePrediction",
    "TercetEncoderForPreTraining",
    "TercetEncoderForQuestionAnswering",
    "TercetEncoderForReplacedTokenDetection",
    "TercetEncoderForSentenceEmbedding",
    "TercetEncoderForSequenceClassification",
    "TercetEncoderForTokenClassification",
    "TercetEncoderModel",
    "TercetPreTrainedModel",
    "TercetRecurrentSeq2SeqConfig",
    "TercetRecurrentSeq2SeqForConditionalGeneration",
    "TercetRecurrentSeq2SeqModel",
    "TercetSeq2SeqConfig",
    "TercetSeq2SeqForConditionalGeneration",
    "TercetSeq2SeqForMultipleChoice",
    "TercetSeq2SeqForQuestionAnswering",
    "TercetSeq2SeqForSequenceClassification",
    "TercetSeq2SeqForTokenClassification",
    "TercetSeq2SeqModel",
    "TercetTaggerConfig",
    "TercetTaggerForTokenClassification",
    "TercetTaggerModel",
    "TercetWordVectorsConfig",
    "TercetWordVectorsModel",
]
