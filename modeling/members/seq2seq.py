"""The sequence-to-sequence model, with all its heads, registered with the Auto classes that load it."""

from transformers import (
    AutoModel,
    AutoModelForMultipleChoice,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from ..configuration_tercet import TercetSeq2SeqConfig
from ..heads.seq2seq_tasks import (
    TercetSeq2SeqForMultipleChoice,
    TercetSeq2SeqForQuestionAnswering,
    TercetSeq2SeqForSequenceClassification,
    TercetSeq2SeqForTokenClassification,
)
from ..modeling_tercet_seq2seq import (
    TercetSeq2SeqForConditionalGeneration,
    TercetSeq2SeqModel,
)
from ..registry import register

register(
    (TercetSeq2SeqConfig,),
    {
        AutoModel: (TercetSeq2SeqModel,),
        AutoModelForPreTraining: (TercetSeq2SeqForConditionalGeneration,),
        AutoModelForSeq2SeqLM: (TercetSeq2SeqForConditionalGeneration,),
        AutoModelForSequenceClassification: (TercetSeq2SeqForSequenceClassification,),
        AutoModelForTokenClassification: (TercetSeq2SeqForTokenClassification,),
        AutoModelForQuestionAnswering: (TercetSeq2SeqForQuestionAnswering,),
        AutoModelForMultipleChoice: (TercetSeq2SeqForMultipleChoice,),
    },
)

__all__ = [
    "TercetSeq2SeqForConditionalGeneration",
    "TercetSeq2SeqForMultipleChoice",
    "TercetSeq2SeqForQuestionAnswering",
    "TercetSeq2SeqForSequenceClassification",
    "TercetSeq2SeqForTokenClassification",
    "TercetSeq2SeqModel",
]
