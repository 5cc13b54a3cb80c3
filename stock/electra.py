"""ELECTRA (Clark et al., 2020): BERT whose embeddings may be narrower than its layers."""

from ..modeling.configuration_tercet import TercetEncoderConfig
from .architecture import Architecture, Counterpart, Field
from .bert import EMBEDDINGS, FIELDS, FIXED, LAYERS, REQUIRED
from .task_heads import ANSWERS, DENSE_LABELS, FIRST_TOKEN, LABELS, PLAIN, head_dropout

MASKED_LM = {
    "generator_predictions.dense.*": "transform.dense.*",
    "generator_predictions.LayerNorm.*": "transform.norm.*",
    "generator_lm_head.*": "lm_head.*",
}
"""With `gelu` in the dense layer, whatever the layers have."""
REPLACED_TOKENS = {
    "discriminator_predictions.dense.*": "replaced_token_head.dense.*",
    "discriminator_predictions.dense_prediction.*": "replaced_token_head.out_proj.*",
}
CHOICES = {"sequence_summary.summary.*": "classifier.transform.dense.*", **LABELS}
SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}
DENSE = FIRST_TOKEN | {"classifier_act": "gelu"}

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
        Counterpart("ElectraForPreTraining", "TercetEncoderForReplacedTokenDetection", REPLACED_TOKENS),
        Counterpart(
            "ElectraForMaskedLM", "TercetEncoderForMaskedLM", MASKED_LM, required={"hidden_act": "gelu"}
        ),
        Counterpart(
            "ElectraForSequenceClassification",
            "TercetEncoderForSequenceClassification",
            DENSE_LABELS,
            values=DENSE,
        ),
        Counterpart(
            "ElectraForTokenClassification", "TercetEncoderForTokenClassification", LABELS, values=PLAIN
        ),
        Counterpart(
            "ElectraForQuestionAnswering", "TercetEncoderForQuestionAnswering", ANSWERS, values=PLAIN
        ),
        Counterpart(
            "ElectraForMultipleChoice",
            "TercetEncoderForMultipleChoice",
            CHOICES,
            fields={"classifier_dropout": head_dropout("summary_last_dropout")},
            values=DENSE,
            required=SUMMARY,
        ),
    ),
    prefix="electra.",
)
