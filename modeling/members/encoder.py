"""The encoder, with all its heads, registered with the Auto classes that load it."""

from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForNextSentencePrediction,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from ..configuration_tercet import TercetEncoderConfig
from ..modeling_tercet_encoder import (
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
from ..registry import register

register(
    (TercetEncoderConfig,),
    {
        AutoModel: (TercetEncoderModel,),
        AutoModelForPreTraining: (
            TercetEncoderForPreTraining,
            TercetEncoderForReplacedTokenDetection,
        ),
        AutoModelForMaskedLM: (TercetEncoderForMaskedLM,),
        AutoModelForNextSentencePrediction: (TercetEncoderForNextSentencePrediction,),
        AutoModelForSequenceClassification: (TercetEncoderForSequenceClassification,),
        AutoModelForTokenClassification: (TercetEncoderForTokenClassification,),
        AutoModelForQuestionAnswering: (TercetEncoderForQuestionAnswering,),
        AutoModelForMultipleChoice: (TercetEncoderForMultipleChoice,),
    },
)

__all__ = [
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
]
