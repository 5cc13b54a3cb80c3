"""The models: importing this package registers them with transformers' Auto classes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transformers import (
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

from .configuration_neural import NeuralConfig
from .configuration_tercet import TercetConfig, TercetDecoderConfig, TercetEncoderConfig, TercetSeq2SeqConfig
from .heads.seq2seq_tasks import (
    TercetSeq2SeqForMultipleChoice,
    TercetSeq2SeqForQuestionAnswering,
    TercetSeq2SeqForSequenceClassification,
    TercetSeq2SeqForTokenClassification,
)
from .modeling_tercet_decoder import (
    TercetDecoderForCausalLM,
    TercetDecoderForMaskedLM,
    TercetDecoderForMultipleChoice,
    TercetDecoderForQuestionAnswering,
    TercetDecoderForSentenceEmbedding,
    TercetDecoderForSequenceClassification,
    TercetDecoderForTokenClassification,
    TercetDecoderModel,
)
from .modeling_tercet_encoder import (
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
from .modeling_tercet_seq2seq import TercetSeq2SeqForConditionalGeneration, TercetSeq2SeqModel
from .pretrained import NeuralLMHeadModel, NeuralPreTrainedModel, TercetPreTrainedModel
from .registry import register

if TYPE_CHECKING:
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

register(
    (
        TercetEncoderConfig,
        TercetDecoderConfig,
        TercetSeq2SeqConfig,
    ),
    {
        AutoModel: (
            TercetEncoderModel,
            TercetDecoderModel,
            TercetSeq2SeqModel,
        ),
        AutoModelForPreTraining: (
            TercetEncoderForPreTraining,
            TercetEncoderForReplacedTokenDetection,
            TercetDecoderForCausalLM,
            TercetSeq2SeqForConditionalGeneration,
        ),
        AutoModelForMaskedLM: (TercetEncoderForMaskedLM, TercetDecoderForMaskedLM),
        AutoModelForNextSentencePrediction: (TercetEncoderForNextSentencePrediction,),
        AutoModelForCausalLM: (TercetDecoderForCausalLM,),
        AutoModelForSeq2SeqLM: (TercetSeq2SeqForConditionalGeneration,),
        AutoModelForSequenceClassification: (
            TercetEncoderForSequenceClassification,
            TercetDecoderForSequenceClassification,
            TercetSeq2SeqForSequenceClassification,
        ),
        AutoModelForTokenClassification: (
            TercetEncoderForTokenClassification,
            TercetDecoderForTokenClassification,
            TercetSeq2SeqForTokenClassification,
        ),
        AutoModelForQuestionAnswering: (
            TercetEncoderForQuestionAnswering,
            TercetDecoderForQuestionAnswering,
            TercetSeq2SeqForQuestionAnswering,
        ),
        AutoModelForMultipleChoice: (
            TercetEncoderForMultipleChoice,
            TercetDecoderForMultipleChoice,
            TercetSeq2SeqForMultipleChoice,
        ),
    },
)


def __getattr__(name: str) -> Any:
    """Find a recurrent member, all of which are imported when one is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".recurrent", __name__), name)


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
