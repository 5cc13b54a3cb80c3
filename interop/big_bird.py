"""BigBird (Zaheer et al., 2020) in full attention, which is BERT with embeddings that may be scaled.

Its head for answers is a whole feed-forward network with a residual sum, and none of ours.
"""

from ..modeling.configuration_tercet import TercetEncoderConfig
from .architecture import Architecture, Counterpart, Field
from .bert import EMBEDDINGS, FIELDS, FIXED, LAYERS, MASKED_LM, REQUIRED, WITHOUT_POOLER
from .task_heads import DENSE_LABELS, FIRST_TOKEN, LABELS, PLAIN, POOLER
from .weights import Dropped

NEXT_SENTENCE = {
    "bert.pooler.*": "next_sentence_head.dense.*",
    "cls.seq_relationship.*": "next_sentence_head.classifier.*",
}
CHOICES = {"bert.pooler.*": "classifier.transform.dense.*", **LABELS}

BIG_BIRD = Architecture(
    model_type="big_bird",
    config=TercetEncoderConfig,
    fields=FIELDS | {"scale_embedding": "rescale_embeddings", "attention_bias": "use_bias"},
    fixed={name: value for name, value in FIXED.items() if name != "attention_bias"}
    | {"attention_out_bias": True},
    required=REQUIRED | {"attention_type": "original_full"},
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
        Counterpart("BigBirdForMultipleChoice", "TercetEncoderForMultipleChoice", CHOICES, values=POOLER),
    ),
    prefix="bert.",
)
