"""How many tokens a model reads at most: the one rule for every command.

The positions are a bound that nothing may exceed. Below it, what the tokenizer says counts, or the length of
sentence vectors in the model's folder. Some models' positions begin behind the id of the pad: they read fewer
tokens than they have positions.
"""

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
"""Types of models whose positions begin behind the id of the pad."""

NAMES = ("max_position_embeddings", "n_positions", "n_ctx")
"""What configurations call the number of positions."""

UNLIMITED = 10**6
"""Length from which on a tokenizer has no limit of its own."""

DEFAULT_LENGTH = 2048
"""Tokens of a text for a model that nothing limits."""


def max_length(config: PreTrainedConfig, told: float | None) -> int:
    """Return how many tokens of a text a model reads: as many as it is told, but no more than its positions.

    Its tokenizer (`model_max_length`) or its folder tells; `None` or a huge number tell nothing.

    >>> from transformers import BertConfig, T5Config
    >>> config = BertConfig(max_position_embeddings=512)
    >>> max_length(config, 256), max_length(config, 1024), max_length(config, None)
    (256, 512, 512)
    >>> max_length(T5Config(), 256), max_length(T5Config(), 1e30)
    (256, 2048)
    """
    limits = most_positions(config), int(told) if told and told < UNLIMITED else None
    return min((limit for limit in limits if limit is not None), default=DEFAULT_LENGTH)


def most_positions(config: PreTrainedConfig) -> int | None:
    """Return the number of positions that tokens can have; `None` if a model reads texts of any length."""
    named = next((number for name in NAMES if (number := getattr(config, name, None))), None)
    return None if named is None else named - positions_of_pads(config)


def positions_of_pads(config: PreTrainedConfig) -> int:
    """Count the positions that no token of a text has: those up to the id of the pad."""
    if config.model_type not in ROBERTA_LIKE:  # others may have no such field
        return 0
    pad: Any = config.pad_token_id
    return 0 if pad is None else pad + 1
