"""Longer sequences than a model was first trained on: rotary positions of stretched wavelengths.

A way to stretch them is a small class, chosen by what transformers calls `rope_type`, and its numbers have
transformers' names. It changes the frequencies, in radians per position.

Shapes: R channels of a head that are turned, in R/2 pairs.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class RopeScaling(ABC):
    """What becomes of the frequencies. Abstract: the classes below say it."""

    @abstractmethod
    def stretch(self, frequencies: Tensor) -> Tensor:
        """Lower the frequencies (R/2,) of those wavelengths that grow."""


class NoScaling(RopeScaling):
    """Wavelengths stay as they are."""

    def stretch(self, frequencies: Tensor) -> Tensor:
        """Return the frequencies (R/2,)."""
        return frequencies


@dataclass(frozen=True)
class LinearScaling(RopeScaling):
    """All wavelengths grow alike, as if positions lay closer together (Chen et al., 2023, section 2.3)."""

    factor: float

    def stretch(self, frequencies: Tensor) -> Tensor:
        """Divide all frequencies (R/2,)."""
        return frequencies / self.factor


@dataclass(frozen=True)
class Llama3Scaling(RopeScaling):
    """Long wavelengths grow; the short ones, which tell neighbours apart, stay (Llama 3.1, in its code).

    A wave is long if it turns less than `low_freq_factor` times in a sequence of the first training, and
    short if it turns more than `high_freq_factor` times. In between its frequency is a mean of both.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    def __post_init__(self) -> None:
        if self.low_freq_factor >= self.high_freq_factor:
            raise ValueError(
                f"rope_scaling has low_freq_factor {self.low_freq_factor} and high_freq_factor "
                f"{self.high_freq_factor}: choose a low one below the high one"
            )

    def stretch(self, frequencies: Tensor) -> Tensor:
        """Divide the low ones of the frequencies (R/2,)."""
        turns = frequencies * self.original_max_position_embeddings / (2 * math.pi)
        kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return (frequencies / self.factor).lerp(frequencies, kept.clamp(0, 1))


ROPE_SCALINGS: dict[str, type[RopeScaling]] = {
    "default": NoScaling,
    "linear": LinearScaling,
    "llama3": Llama3Scaling,
}


def build_rope_scaling(described: dict[str, Any] | None) -> RopeScaling:
    """Build what the field `rope_scaling` of a configuration describes.

    Raises:
        ValueError: The description names no known type, or not exactly its numbers.
    """
    numbers: dict[str, Any] = dict(described or {"rope_type": "default"})
    name = str(numbers.pop("rope_type", None))
    if name not in ROPE_SCALINGS:
        raise ValueError(f"rope_scaling has the rope_type {name!r}: choose one of {', '.join(ROPE_SCALINGS)}")
    wanted = [field.name for field in fields(ROPE_SCALINGS[name])]
    if set(numbers) != set(wanted):
        raise ValueError(
            f"rope_scaling of rope_type {name!r} has {sorted(numbers)}: give exactly {wanted} beside it"
        )
    for key, value in numbers.items():
        if not isinstance(value, int | float) or value <= 0:
            raise ValueError(f"rope_scaling has the {key} {value!r}: choose a number above 0")
    return ROPE_SCALINGS[name](**numbers)
