"""RoBERTa (Liu et al., 2019): BERT without segments, whose positions begin behind the padding id."""

from ..modeling.configuration_tercet import TercetEncoderConfig
from .architecture import Architecture, Counterpart, Field
from .bert import EMBEDDINGS, FIELDS, FIXED, LAYERS, NO_POOLER, REQUIRED, WITHOUT_POOLER
from .task_heads import ANSWERS, DENSE_LABELS, LABELS, PLAIN, POOLER
from .weights import Dropped

MASKED_LM = {
    "lm_head.dense.*": "transform.dense.*",
    "lm_head.layer_norm.*": "transform.norm.*",
    "lm_head.decoder.*": "lm_head.*",
    "lm_head.bias": Dropped("the vocabulary's layer has the bias"),
}
"""With `gelu` in the dense layer, whatever the layers have."""
CHOICES = {"roberta.pooler.dense.*": "classifier.transform.dense.*", **LABELS}

ROBERTA = Architecture(
    model_type="roberta",
    config=TercetEncoderConfig,
    fields=FIELDS
    | {
        "position_offset": Field(lambda stock: stock.pad_token_id + 1, lambda config: {}),
        "max_position_embeddings": Field(
            lambda stock: stock.max_position_embeddings - stock.pad_token_id - 1,
            lambda config: {
                "max_position_embeddings": config.max_position_embeddings + config.position_offset
            },
        ),
    },
    fixed=FIXED,
    required=REQUIRED,
    weights=EMBEDDINGS | LAYERS | NO_POOLER,
    counterparts=(
        Counterpart("RobertaModel", "TercetEncoderModel", arguments=WITHOUT_POOLER),
        Counterpart(
            "RobertaForMaskedLM", "TercetEncoderForMaskedLM", MASKED_LM, required={"hidden_act": "gelu"}
        ),
        Counterpart(
            "RobertaForSequenceClassification",
            "TercetEncoderForSequenceClassification",
            DENSE_LABELS,
            values=POOLER,
        ),
        Counterpart(
            "RobertaForTokenClassification", "TercetEncoderForTokenClassification", LABELS, values=PLAIN
        ),
        Counterpart(
            "RobertaForQuestionAnswering", "TercetEncoderForQuestionAnswering", ANSWERS, values=PLAIN
        ),
        Counterpart("RobertaForMultipleChoice", "TercetEncoderForMultipleChoice", CHOICES, values=POOLER),
    ),
    prefix="roberta.",
)
