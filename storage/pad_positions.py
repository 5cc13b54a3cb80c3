"""Models whose positions begin behind the id of the pad: they read fewer tokens than they have positions."""

from typing import Any

from transformers import PreTrainedConfig

ROBERTA_LIKE = (
    "camembert",
    "data2vec-text",
    "ibert",
    "longformer",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
)
"""Their types."""


def positions_of_pads(config: PreTrainedConfig) -> int:
    """Count the positions that no token of a text has: those up to the id of the pad."""
    pad: Any = config.pad_token_id
    return pad + 1 if config.model_type in ROBERTA_LIKE and pad is not None else 0
