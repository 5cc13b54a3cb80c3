"""BigBird (Zaheer et al., 2020) in full attention, which is BERT with embeddings that may be scaled."""

from ..modeling.configuration_tercet import TercetEncoderConfig
from .architecture import Architecture, Counterpart
from .bert import EMBEDDINGS, FIELDS, FIXED, LAYERS, MASKED_LM, REQUIRED, WITHOUT_POOLER
from .weights import Dropped

NEXT_SENTENCE = {
    "bert.pooler.*": "next_sentence_head.dense.*",
    "cls.seq_relationship.*": "next_sentence_head.classifier.*",
}

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
    ),
    prefix="bert.",
)
