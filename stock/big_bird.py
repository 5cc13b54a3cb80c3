"""BigBird (Zaheer et al., 2020): BERT with embeddings that may be scaled, in full or in sparse attention.

Sparse attention is that of transformers in evaluation, with its defects: `stock_big_bird_attention.py` in
`modeling` says which. Its head for answers is a whole feed-forward network with a residual sum.
"""

from typing import Any

from ..modeling.configuration_tercet import TercetConfig, TercetEncoderConfig
from .architecture import Architecture, Counterpart, Field
from .bert import EMBEDDINGS, FIELDS, FIXED, LAYERS, MASKED_LM, REQUIRED, WITHOUT_POOLER
from .task_heads import DENSE_LABELS, FIRST_TOKEN, LABELS, PLAIN, POOLER
from .weights import Dropped

SPARSE = "stock_big_bird_attention"
NEXT_SENTENCE = {
    "bert.pooler.*": "next_sentence_head.dense.*",
    "cls.seq_relationship.*": "next_sentence_head.classifier.*",
}
CHOICES = {"bert.pooler.*": "classifier.transform.dense.*", **LABELS}
ANSWERS = {
    "qa_classifier.intermediate.dense.*": "qa_outputs.feed_forward.up_proj.*",
    "qa_classifier.output.dense.*": "qa_outputs.feed_forward.down_proj.*",
    "qa_classifier.output.LayerNorm.*": "qa_outputs.norm.*",
    "qa_classifier.qa_outputs.*": "qa_outputs.out_proj.*",
}


def layer_types(stock: Any) -> list[str] | None:
    """Name the types of layers, which are all the same."""
    return [SPARSE] * stock.num_hidden_layers if stock.attention_type == "block_sparse" else None


def attention_type(config: TercetConfig) -> dict[str, str]:
    """Say what the first layer has; if others differ, the comparison of configurations names them."""
    return {"attention_type": "block_sparse" if config.types_of_layers[0] == SPARSE else "original_full"}


BIG_BIRD = Architecture(
    model_type="big_bird",
    config=TercetEncoderConfig,
    fields=FIELDS
    | {
        "scale_embedding": "rescale_embeddings",
        "attention_bias": "use_bias",
        "layer_types": Field(layer_types, attention_type),
        "attention_block_size": "block_size",
        "attention_random_blocks": "num_random_blocks",
    },
    fixed={name: value for name, value in FIXED.items() if name != "attention_bias"}
    | {"attention_out_bias": True, "answer_head": "feed_forward"},
    required=REQUIRED,
    weights=EMBEDDINGS | LAYERS | {"pooler.*": Dropped("states of tokens do not depend on the pooler")},
    counterparts=(
        Counterpart("BigBirdModel", "TercetEncoderModel", arguments=WITHOUT_POOLER),
        Counterpart("BigBirdForMaskedLM", "TercetEncoderForMaskedLM", MASKED_LM),
        Counterpart("BigBirdForPreTraining", "TercetEncoderForPreTraining", MASKED_LM | NEXT_SENTENCE),
        Counterpart(
            "BigBirdForSequenceClassification",
            "TercetEncoderForSequenceClassification",
            DENSE_LABELS,
            fields={"classifier_act": Field(lambda stock: stock.hidden_act, lambda config: {})},
            values=FIRST_TOKEN,
        ),
        Counterpart(
            "BigBirdForTokenClassification", "TercetEncoderForTokenClassification", LABELS, values=PLAIN
        ),
        Counterpart("BigBirdForQuestionAnswering", "TercetEncoderForQuestionAnswering", ANSWERS),
        Counterpart("BigBirdForMultipleChoice", "TercetEncoderForMultipleChoice", CHOICES, values=POOLER),
    ),
    prefix="bert.",
)
