"""mBART (Liu et al., 2020): BART with the norms before the sub-layers, and one behind the last.

For a task its decoder starts with the last token of the text. Ours starts with `decoder_start_token_id`,
which is the same where texts end in it.
"""

from ..modeling.configuration_tercet import TercetSeq2SeqConfig
from .architecture import Architecture, Counterpart, Field
from .bart import EMBEDDINGS, FIELDS, FIXED, HEAD, LAYERS, LEARNED_POSITIONS, has_head_bias
from .task_heads import ANSWERS, AT_THE_END, DROPOUT, ENDED, HEAD_LABELS

STARTED_BY_THE_END = ENDED | {
    "decoder_start_token_id": Field(lambda stock: stock.eos_token_id, lambda config: {})
}

MBART = Architecture(
    model_type="mbart",
    config=TercetSeq2SeqConfig,
    fields=FIELDS | DROPOUT,
    fixed=FIXED | LEARNED_POSITIONS | {"norm_placement": "pre"},
    required={},
    weights=LAYERS
    | EMBEDDINGS
    | {"encoder.layer_norm.*": "encoder.norm.*", "decoder.layer_norm.*": "decoder.norm.*"},
    counterparts=(
        Counterpart("MBartModel", "TercetSeq2SeqModel"),
        Counterpart("MBartForConditionalGeneration", "TercetSeq2SeqForConditionalGeneration", HEAD),
        Counterpart(
            "MBartForSequenceClassification",
            "TercetSeq2SeqForSequenceClassification",
            HEAD_LABELS,
            values=AT_THE_END,
            fields=STARTED_BY_THE_END,
        ),
        Counterpart(
            "MBartForQuestionAnswering",
            "TercetSeq2SeqForQuestionAnswering",
            ANSWERS,
            fields=STARTED_BY_THE_END,
        ),
    ),
    prefix="model.",
    by_weights={"head_bias": has_head_bias},
)
