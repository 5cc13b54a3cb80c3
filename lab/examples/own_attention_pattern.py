"""Add an attention pattern of your own, and pretrain with and without it.

    python lab/examples/own_attention_pattern.py training.steps=500

A pattern is a class that says which keys a query may attend to. With its name in `PATTERNS`, it is a type of
layer in every configuration. Training, packing, caches and generation follow from `allows`.
"""

import sys
from collections.abc import Sequence

from torch import Tensor
from transformers import PreTrainedConfig

import tercet
from tercet.modeling.attention.abstract_pattern import MappedPattern
from tercet.modeling.attention.patterns import PATTERNS
from tercet.modeling.compatibility import register_layer_types


class DilatedAttention(MappedPattern):
    """Every second key: the query itself, the key two before it, ... (Beltagy et al., 2020, section 3.1)."""

    @classmethod
    def require(cls, config: PreTrainedConfig, layer_types: str) -> None:
        """Require no field of the configuration."""

    def allows(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Allow pairs at an even distance; in a decoder only keys that are not behind the query."""
        distances = queries - keys
        is_even = distances % 2 == 0
        return is_even & (distances >= 0) if self.is_causal else is_even

    def is_full(self, length: int) -> bool:
        """Two tokens are already too many."""
        return length < 2


PATTERNS["dilated_attention"] = DilatedAttention
register_layer_types(PATTERNS)

LAYERS = {
    "full": ["full_attention"] * 4,
    "dilated below": ["dilated_attention"] * 2 + ["full_attention"] * 2,
}
"""Name of a model -> the types of its layers."""


def main(overrides: Sequence[str]) -> None:
    """Pretrain the recipe `decoder-demo` with each choice of layers, and print how well it predicts."""
    for name, layer_types in LAYERS.items():
        recipe = tercet.load_recipe("decoder-demo", "training.steps=200", *overrides)
        run = tercet.pretrain(
            recipe,
            f"model.overrides.layer_types={layer_types}",
            output=f"runs/own-pattern/{name.replace(' ', '-')}",
            overwrite=True,
        )
        print(f"{name}: perplexity {run.scores['clm/perplexity']}")


if __name__ == "__main__":
    main(sys.argv[1:])
