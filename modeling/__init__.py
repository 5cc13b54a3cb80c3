"""The models: importing this package registers them with transformers' Auto classes."""

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
from .recurrent.character import TercetCharacterLanguageModel, TercetCharacterModel
from .recurrent.configurations import (
    TercetCharacterConfig,
    TercetElmoConfig,
    TercetRecurrentSeq2SeqConfig,
    TercetTaggerConfig,
    TercetWordVectorsConfig,
)
from .recurrent.elmo import (
    TercetElmoForLanguageModeling,
    TercetElmoForSequenceClassification,
    TercetElmoForTokenClassification,
    TercetElmoModel,
)
from .recurrent.seq2seq import (
    TercetRecurrentSeq2SeqForConditionalGeneration,
    TercetRecurrentSeq2SeqModel,
)
from .recurrent.static_vectors import TercetWordVectorsModel
from .recurrent.tagger import TercetTaggerForTokenClassification, TercetTaggerModel

CONFIGURATIONS = (
    TercetEncoderConfig,
    TercetDecoderConfig,
    TercetSeq2SeqConfig,
    TercetCharacterConfig,
    TercetElmoConfig,
    TercetRecurrentSeq2SeqConfig,
    TercetTaggerConfig,
    TercetWordVectorsConfig,
)

AUTO_CLASSES = {
    AutoModel: (
        TercetEncoderModel,
        TercetDecoderModel,
        TercetSeq2SeqModel,
        TercetCharacterModel,
        TercetElmoModel,
        TercetRecurrentSeq2SeqModel,
        TercetTaggerModel,
        TercetWordVectorsModel,
    ),
    AutoModelForPreTraining: (
        TercetEncoderForPreTraining,
        TercetEncoderForReplacedTokenDetection,
        TercetDecoderForCausalLM,
        TercetSeq2SeqForConditionalGeneration,
        TercetCharacterLanguageModel,
        TercetRecurrentSeq2SeqForConditionalGeneration,
        TercetElmoForLanguageModeling,
    ),
    AutoModelForMaskedLM: (TercetEncoderForMaskedLM, TercetDecoderForMaskedLM),
    AutoModelForNextSentencePrediction: (TercetEncoderForNextSentencePrediction,),
    AutoModelForCausalLM: (TercetDecoderForCausalLM,),
    AutoModelForSeq2SeqLM: (
        TercetSeq2SeqForConditionalGeneration,
        TercetRecurrentSeq2SeqForConditionalGeneration,
    ),
    AutoModelForSequenceClassification: (
        TercetEncoderForSequenceClassification,
        TercetDecoderForSequenceClassification,
        TercetSeq2SeqForSequenceClassification,
        TercetElmoForSequenceClassification,
    ),
    AutoModelForTokenClassification: (
        TercetEncoderForTokenClassification,
        TercetDecoderForTokenClassification,
        TercetSeq2SeqForTokenClassification,
        TercetElmoForTokenClassification,
        TercetTaggerForTokenClassification,
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
}
"""Which models each Auto class can load."""

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


def models_of(kind: type[NeuralConfig], auto_class: type) -> tuple[type[NeuralPreTrainedModel], ...]:
    """Return the models of a kind of configuration that an Auto class can load, the usual one first."""
    return tuple(model for model in AUTO_CLASSES[auto_class] if model.config_class is kind)


for _config in CONFIGURATIONS:
    AutoConfig.register(_config.model_type, _config)
for _auto_class in AUTO_CLASSES:
    for _config in CONFIGURATIONS:
        if _models := models_of(_config, _auto_class):
            # Of several, transformers takes the one that a configuration names, else the first.
            _auto_class.register(_config, _models[0] if len(_models) == 1 else _models)

for _auto_class, _table in NAME_TABLES.items():
    _names = getattr(modeling_auto, _table)
    for _model in AUTO_CLASSES[_auto_class]:
        _names.setdefault(_model.config_class.model_type, _model.__name__)

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
