"""The peak learning rate where a recipe names none: the larger the model, the smaller.

A power law goes through what was measured here for small models and what is published for large ones.
Parameters are those outside the tables of embeddings, since the rate does not depend on the size of the
vocabulary:

    3.2 million    5e-4            `encoder-english` (docs/results.md)
    10.8 million   2e-4 to 8e-4    all-MiniLM-L6-v2 (docs/finetuning.md)
    85 million     2e-5 to 5e-5    BERT-base (Devlin et al., 2019, section A.3)
    302 million    1e-5 to 3e-5    RoBERTa-large (Liu et al., 2019, table 10)
"""

from dataclasses import dataclass

import torch
from torch import nn
from transformers import AutoModel, PreTrainedConfig

from ..modeling.saved.checkpoint import Checkpoint
from .model import MEMBERS
from .recipe import FineTuningTraining, LoraRecipe

BASE, RATE_OF_BASE, EXPONENT = 85e6, 3e-5, 0.85
"""Parameters and learning rate of BERT-base, and how fast rates fall as the number of parameters grows."""

LOWEST, HIGHEST = 1e-5, 1e-3
"""Learning rates of whole models that nobody has tried beyond."""

OF_ADAPTERS, HIGHEST_OF_ADAPTERS = 15.0, 1e-3
"""Times the rate of the whole model that low-rank additions take (4e-4 to 5e-4 for RoBERTa-base, 2e-4 to 4e-4
for RoBERTa-large: Hu et al., 2022, table 9), and where that ends."""

OF_HEADS = 1e-3
"""Learning rate of a head alone, before which all layers are frozen, whatever their size."""

OF_TAGGERS = 2e-3
"""Learning rate of a tagger, whose layers are new and as wide for all word vectors."""

CHOSEN = "training.learning_rate"
"""The key of a recipe that is chosen."""


@dataclass(frozen=True)
class LearningRate:
    """A learning rate, and the reason for its value."""

    value: float
    reason: str

    def __str__(self) -> str:
        return f"{CHOSEN} = {in_recipes(self.value)}, {self.reason}"


def choose_learning_rate(
    model: Checkpoint,
    training: FineTuningTraining,
    lora: LoraRecipe | None = None,
    *,
    is_tagger: bool = False,
) -> LearningRate | None:
    """Choose the peak learning rate of a model by what of it learns; `None` where one is named."""
    if training.learning_rate is not None:
        return None
    if is_tagger:
        return LearningRate(OF_TAGGERS, "that of taggers on frozen word vectors")
    if model.config.model_type not in MEMBERS:
        model.require_transformer()
    return rate_of_size(
        count_parameters(model.config),
        has_adapters=lora is not None,
        is_frozen=training.frozen_layers < 0,
    )


def rate_of_size(count: int, *, has_adapters: bool = False, is_frozen: bool = False) -> LearningRate:
    """Return the learning rate of a model with so many parameters outside its embeddings.

    >>> rate_of_size(86_000_000).value, rate_of_size(3_200_000).value
    (3e-05, 0.0005)
    """
    if is_frozen:
        return LearningRate(OF_HEADS, "that of a head alone: all layers are frozen")
    size = f"{count / 1e6:,.1f} million parameters outside the embeddings"
    rate = min(max(RATE_OF_BASE * (BASE / max(count, 1)) ** EXPONENT, LOWEST), HIGHEST)
    if has_adapters:
        rate = min(OF_ADAPTERS * rate, HIGHEST_OF_ADAPTERS)
        return LearningRate(rounded(rate), f"chosen for low-rank adapters of a model with {size}")
    return LearningRate(rounded(rate), f"chosen for a model with {size}")


def count_parameters(config: PreTrainedConfig) -> int:
    """Count the parameters of a model outside its tables of embeddings; no storage is taken."""
    if not config.model_type.startswith("tercet"):
        from ..modeling.stock.architectures import architecture_of

        architecture_of(config)
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    embeddings = {id(weight): weight.numel() for weight in tables}
    return sum(each.numel() for each in model.parameters()) - sum(embeddings.values())


def rounded(rate: float) -> float:
    """Round a rate to one digit, as people write them."""
    return float(f"{rate:.0e}")


def in_recipes(rate: float) -> str:
    """Write a rate as YAML reads it as a number.

    >>> in_recipes(5e-4)
    '5.0e-4'
    """
    digits, exponent = f"{rate:.1e}".split("e")
    return f"{digits}e{int(exponent)}"
