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
    if config.model_type not in ROBERTA_LIKE:  # others may have no such field
        return 0
    pad: Any = config.pad_token_id
    return 0 if pad is None else pad + 1
