"""Mistral (Jiang et al., 2023): Llama in which all layers slide, or none."""

from ..modeling.configuration_tercet import TercetDecoderConfig
from .architecture import Architecture, Field
from .llama import FIELDS, FIXED, WEIGHTS, counterparts


def slides(layer_types: list[str]) -> bool:
    """Return whether a layer reads what is near only."""
    return "sliding_attention" in layer_types


MISTRAL = Architecture(
    model_type="mistral",
    config=TercetDecoderConfig,
    fields=FIELDS
    | {
        "head_dim": "head_dim",
        "layer_types": Field(
            lambda stock: (
                None if stock.sliding_window is None else ["sliding_attention"] * stock.num_hidden_layers
            ),
            lambda config: {},
        ),
        "sliding_window": Field(
            lambda stock: stock.sliding_window,
            lambda config: {
                "sliding_window": config.sliding_window if slides(config.types_of_layers) else None
            },
        ),
    },
    fixed=FIXED,
    required={},
    weights=WEIGHTS,
    counterparts=counterparts("Mistral", reader="model."),
    prefix="model.",
)
