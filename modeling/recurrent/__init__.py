"""Members without attention layers: character model, ELMo, recurrent translator, tagger, word vectors.

They are imported, and registered, when one of them is asked for by its name or its type.
"""

from transformers import (
    AutoModel,
    AutoModelForPreTraining,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from ..registry import register
from .character import TercetCharacterLanguageModel, TercetCharacterModel
from .configurations import (
    TercetCharacterConfig,
    TercetElmoConfig,
    TercetRecurrentSeq2SeqConfig,
    TercetTaggerConfig,
    TercetWordVectorsConfig,
)
from .elmo import (
    TercetElmoForLanguageModeling,
    TercetElmoForSequenceClassification,
    TercetElmoForTokenClassification,
    TercetElmoModel,
)
from .seq2seq import TercetRecurrentSeq2SeqForConditionalGeneration, TercetRecurrentSeq2SeqModel
from .static_vectors import TercetWordVectorsModel
from .tagger import TercetTaggerForTokenClassification, TercetTaggerModel

register(
    (
        TercetCharacterConfig,
        TercetElmoConfig,
        TercetRecurrentSeq2SeqConfig,
        TercetTaggerConfig,
        TercetWordVectorsConfig,
    ),
    {
        AutoModel: (
            TercetCharacterModel,
            TercetElmoModel,
            TercetRecurrentSeq2SeqModel,
            TercetTaggerModel,
            TercetWordVectorsModel,
        ),
        AutoModelForPreTraining: (
            TercetCharacterLanguageModel,
            TercetRecurrentSeq2SeqForConditionalGeneration,
            TercetElmoForLanguageModeling,
        ),
        AutoModelForSeq2SeqLM: (TercetRecurrentSeq2SeqForConditionalGeneration,),
        AutoModelForSequenceClassification: (TercetElmoForSequenceClassification,),
        AutoModelForTokenClassification: (
            TercetElmoForTokenClassification,
            TercetTaggerForTokenClassification,
        ),
    },
)

__all__ = [
    "TercetCharacterConfig",
    "TercetCharacterLanguageModel",
    "TercetCharacterModel",
    "TercetElmoConfig",
    "TercetElmoForLanguageModeling",
    "TercetElmoForSequenceClassification",
    "TercetElmoForTokenClassification",
    "TercetElmoModel",
    "TercetRecurrentSeq2SeqConfig",
    "TercetRecurrentSeq2SeqForConditionalGeneration",
    "TercetRecurrentSeq2SeqModel",
    "TercetTaggerConfig",
    "TercetTaggerForTokenClassification",
    "TercetTaggerModel",
    "TercetWordVectorsConfig",
    "TercetWordVectorsModel",
]
