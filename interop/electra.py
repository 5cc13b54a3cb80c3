"""ELECTRA (Clark et al., 2020): BERT whose embeddings may be narrower than its layers."""

from ..modeling.configuration_tercet import TercetEncoderConfig
from .architecture import Architecture, Counterpart
from .bert import EMBEDDINGS, FIELDS, FIXED, LAYERS, REQUIRED

MASKED_LM = {
    "generator_predictions.dense.*": "transform.dense.*",
    "generator_predictions.LayerNorm.*": "transform.norm.*",
    "generator_lm_head.*": "lm_head.*",
}

ELECTRA = Architecture(
    model_type="electra",
    config=TercetEncoderConfig,
    fields=FIELDS | {"embedding_size": "embedding_size"},
    fixed=FIXED,
    required=REQUIRED,
    weights=EMBEDDINGS | LAYERS | {"embeddings_project.*": "embeddings.projection.*"},
    counterparts=(
        Counterpart("ElectraModel", "TercetEncoderModel"),
        Counterpart("ElectraForMaskedLM", "TercetEncoderForMaskedLM", MASKED_LM),
    ),
    prefix="electra.",
)
