"""mBART (Liu et al., 2020): BART with the norms before the sub-layers, and one behind the last."""

from ..modeling.configuration_tercet import TercetSeq2SeqConfig
from .architecture import Architecture, Counterpart
from .bart import EMBEDDINGS, FIELDS, FIXED, HEAD, LAYERS, LEARNED_POSITIONS, has_head_bias

MBART = Architecture(
    model_type="mbart",
    config=TercetSeq2SeqConfig,
    fields=FIELDS,
    fixed=FIXED | LEARNED_POSITIONS | {"norm_placement": "pre"},
    required={},
    weights=LAYERS
    | EMBEDDINGS
    | {"encoder.layer_norm.*": "encoder.norm.*", "decoder.layer_norm.*": "decoder.norm.*"},
    counterparts=(
        Counterpart("MBartModel", "TercetSeq2SeqModel"),
        Counterpart("MBartForConditionalGeneration", "TercetSeq2SeqForConditionalGeneration", HEAD),
    ),
    prefix="model.",
    by_weights={"head_bias": has_head_bias},
)
