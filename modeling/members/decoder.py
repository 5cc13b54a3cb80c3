"""The decoder, with all its heads, registered with the Auto classes that load it."""

from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from ..configuration_tercet import TercetDecoderConfig
from ..modeling_tercet_decoder import (
    TercetDecoderForCausalLM,
    TercetDecoderForMaskedLM,
    TercetDecoderForMultipleChoice,
    TercetDecoderForQuestionAnswering,
    TercetDecoderForSentenceEmbedding,
    TercetDecoderForSequenceClassification,
    TercetDecoderForTokenClassification,
    TercetDecoderModel,
)
from ..registry import register

register(
    (TercetDecoderConfig,),
    {
        AutoModel: (TercetDecoderModel,),
        AutoModelForPreTraining: (TercetDecoderForCausalLM,),
        AutoModelForMaskedLM: (TercetDecoderForMaskedLM,),
        AutoModelForCausalLM: (TercetDecoderForCausalLM,),
        AutoModelForSequenceClassification: (TercetDecoderForSequenceClassification,),
        AutoModelForTokenClassification: (TercetDecoderForTokenClassification,),
        AutoModelForQuestionAnswering: (TercetDecoderForQuestionAnswering,),
        AutoModelForMultipleChoice: (TercetDecoderForMultipleChoice,),
    },
)

__all__ = [
    "TercetDecoderForCausalLM",
    "TercetDecoderForMaskedLM",
    "TercetDecoderForMultipleChoice",
    "TercetDecoderForQuestionAnswering",
    "TercetDecoderForSentenceEmbedding",
    "TercetDecoderForSequenceClassification",
    "TercetDecoderForTokenClassification",
    "TercetDecoderModel",
]
