"""ELECTRA (Clark et al., 2020): BERT whose embeddings may be narrower than its layers."""

from ..modeling.configuration_tercet import TercetEncoderConfig
from .architecture import Architecture, Counterpart, Field
from .bert import EMBEDDINGS, FIELDS, FIXED, LAYERS, REQUIRED
from .task_heads import ANSWERS, DENSE_LABELS, FIRST_TOKEN, LABELS

MASKED_LM = {
    "generator_predictions.dense.*": "transform.dense.*",
    "generator_predictions.LayerNorm.*": "transform.norm.*",
    "generator_lm_head.*": "lm_head.*",
}

ELECTRA = Architecture(
    model_type="electra",
    config=TercetEncoderConfig,
    fields=FIELDS
    | {
        "embedding_size": Field(
            lambda stock: None if stock.embedding_size == stock.hidden_size else stock.embedding_size,
            lambda config: {"embedding_size": config.embedding_width},
        )
    },
    fixed=FIXED,
    required=REQUIRED,
    weights=EMBEDDINGS | LAYERS | {"embeddings_project.*": "embeddings.projection.*"},
    counterparts=(
        Counterpart("ElectraModel", "TercetEncoderModel"),
        Counterpart("ElectraForMaskedLM", "TercetEncoderForMaskedLM", MASKED_LM),
        Counterpart(
            "ElectraForSequenceClassification",
            "TercetEncoderForSequenceClassification",
            DENSE_LABELS,
            values=FIRST_TOKEN | {"classifier_act": "gelu"},
        ),
        Counterpart("ElectraForTokenClassification", "TercetEncoderForTokenClassification", LABELS),
        Counterpart("ElectraForQuestionAnswering", "TercetEncoderForQuestionAnswering", ANSWERS),
    ),
    prefix="electra.",
)
