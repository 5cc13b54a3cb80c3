"""The models: importing this package registers them with transformers' Auto classes."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForNextSentencePrediction,
    AutoModelForPreTraining,
    AutoModelForSeq2SeqLM,
)
from transformers.models.auto import modeling_auto

from .configuration_tercet import TercetConfig, TercetDecoderConfig, TercetEncoderConfig, TercetSeq2SeqConfig
from .modeling_tercet_decoder import TercetDecoderForCausalLM, TercetDecoderModel
from .modeling_tercet_encoder import (
    TercetEncoderForMaskedLM,
    TercetEncoderForNextSentencePrediction,
    TercetEncoderForPreTraining,
    TercetEncoderModel,
)
from .modeling_tercet_seq2seq import TercetSeq2SeqForConditionalGeneration, TercetSeq2SeqModel
from .pretrained_tercet import TercetPreTrainedModel

CONFIGURATIONS = (TercetEncoderConfig, TercetDecoderConfig, TercetSeq2SeqConfig)

AUTO_CLASSES = {
    AutoModel: (TercetEncoderModel, TercetDecoderModel, TercetSeq2SeqModel),
    AutoModelForPreTraining: (
        TercetEncoderForPreTraining,
        TercetDecoderForCausalLM,
        TercetSeq2SeqForConditionalGeneration,
    ),
    AutoModelForMaskedLM: (TercetEncoderForMaskedLM,),
    AutoModelForNextSentencePrediction: (TercetEncoderForNextSentencePrediction,),
    AutoModelForCausalLM: (TercetDecoderForCausalLM,),
    AutoModelForSeq2SeqLM: (TercetSeq2SeqForConditionalGeneration,),
}
"""Which models each Auto class can load."""

for _config in CONFIGURATIONS:
    AutoConfig.register(_config.model_type, _config)
for _auto_class, _models in AUTO_CLASSES.items():
    for _model in _models:
        _auto_class.register(_model.config_class, _model)

# Trainer shifts labels under label smoothing, and pipelines accept a model, by class names in these tables.
for _table, _config, _model in (
    ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", TercetDecoderConfig, TercetDecoderForCausalLM),
    ("MODEL_FOR_MASKED_LM_MAPPING_NAMES", TercetEncoderConfig, TercetEncoderForMaskedLM),
    (
        "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
        TercetSeq2SeqConfig,
        TercetSeq2SeqForConditionalGeneration,
    ),
):
    getattr(modeling_auto, _table).setdefault(_config.model_type, _model.__name__)

__all__ = [
    "TercetConfig",
    "TercetDecoderConfig",
    "TercetDecoderForCausalLM",
    "TercetDecoderModel",
    "TercetEncoderConfig",
    "TercetEncoderForMaskedLM",
    "TercetEncoderForNextSentencePrediction",
    "TercetEncoderForPreTraining",
    "TercetEncoderModel",
    "TercetPreTrainedModel",
    "TercetSeq2SeqConfig",
    "TercetSeq2SeqForConditionalGeneration",
    "TercetSeq2SeqModel",
]
