"""Longer sequences than a model was first trained on: rotary positions of stretched wavelengths.

Each method is a small class, chosen by what transformers calls `rope_type`, and its numbers have
transformers' names. It changes the frequencies, in radians per position.

Shapes: B batch, T positions, R channels of a head that are turned, in R/2 pairs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

import torch
from torch import Tensor

ORIGINAL_LENGTH = "original_max_position_embeddings"
"""Length of the sequences of the first training: transformers may state it with any type, used or not."""


@dataclass(frozen=True)
class RopeScaling(ABC):
    """How frequencies are changed. Abstract."""

    @property
    def attention_factor(self) -> float:
        """Factor of cosines and sines, and so, squared, of the scores of attention."""
        return 1.0

    @abstractmethod
    def stretch(self, base: float, width: int, position_ids: Tensor) -> Tensor:
        """Give the frequencies (R/2,) of `width` = R channels for positions (B, T): see `frequencies_of`."""


class NoScaling(RopeScaling):
    """Wavelengths stay as they are."""

    def stretch(self, base: float, width: int, position_ids: Tensor) -> Tensor:
        """Return the frequencies (R/2,) of the base."""
        return frequencies_of(width, base, position_ids.device)


@dataclass(frozen=True)
class LinearScaling(RopeScaling):
    """All wavelengths grow alike, as if positions lay closer together (Chen et al., 2023, section 2.3)."""

    factor: float

    def stretch(self, base: float, width: int, position_ids: Tensor) -> Tensor:
        """Divide all frequencies (R/2,)."""
        return frequencies_of(width, base, position_ids.device) / self.factor


@dataclass(frozen=True)
class DynamicScaling(RopeScaling):
    """The base grows with the longest sequence of a batch, once this is longer than those of training.

    The method is "dynamic NTK-aware" scaling (Peng et al., 2023, section 3.3), the formula transformers'.
    There a model also keeps the length of its longest sequence so far; here a batch does not depend on those
    before it. Cached keys keep the angles of the length at which they were computed, as in transformers.
    """

    factor: float
    max_position_embeddings: int

    def stretch(self, base: float, width: int, position_ids: Tensor) -> Tensor:
        """Lower the frequencies (R/2,), the first of them not at all."""
        length = (position_ids.max() + 1).clamp(min=self.max_position_embeddings)
        growth = self.factor * length / self.max_position_embeddings - (self.factor - 1)
        # 1 / (base * growth^(R / (R - 2)))^(2i / R), where two channels have but the frequency 1.
        exponents = torch.arange(0, width, 2, device=length.device).float() / max(width - 2, 1)
        return frequencies_of(width, base, length.device) * growth.float() ** -exponents


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

    def stretch(self, base: float, width: int, position_ids: Tensor) -> Tensor:
        """Divide the low ones of the frequencies (R/2,)."""
        frequencies = frequencies_of(width, base, position_ids.device)
        turns = frequencies * self.original_max_position_embeddings / (2 * math.pi)
        kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return (frequencies / self.factor).lerp(frequencies, kept.clamp(0, 1))


@dataclass(frozen=True)
class YarnScaling(RopeScaling):
    """Long wavelengths grow and short ones stay, and attention is sharpened (Peng et al., 2023, section 3.4).

    A wave that turns more than `beta_fast` times in a sequence of the first training is short, one that turns
    less than `beta_slow` times is long. In between the share of both goes by the number of the channel, whole
    channels if `truncate`. `mscale` and `mscale_all_dim` are DeepSeek's ways to say the attention factor.
    """

    factor: float
    original_max_position_embeddings: int
    attention_factor: float | None = None  # pyright: ignore[reportIncompatibleMethodOverride]
    beta_fast: float | None = None
    beta_slow: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        if (self.beta_fast or 32) <= (self.beta_slow or 1):
            raise ValueError(
                f"rope_scaling has beta_fast {self.beta_fast or 32} and beta_slow {self.beta_slow or 1}: "
                "choose a fast one above the slow one"
            )
        if self.attention_factor is None:
            factor = self._sharpness(1.0)
            if self.mscale and self.mscale_all_dim:
                factor = self._sharpness(self.mscale) / self._sharpness(self.mscale_all_dim)
            object.__setattr__(self, "attention_factor", factor)

    def _sharpness(self, scale: float) -> float:
        return 1.0 if self.factor <= 1 else 0.1 * scale * math.log(self.factor) + 1.0

    def stretch(self, base: float, width: int, position_ids: Tensor) -> Tensor:
        """Divide the low ones of the frequencies (R/2,)."""

        def channel(turns: float) -> float:
            """Find the pair, not always a whole number, whose wave turns so often."""
            wavelength = self.original_max_position_embeddings / (turns * 2 * math.pi)
            return width * math.log(wavelength) / (2 * math.log(base))

        first, last = channel(self.beta_fast or 32), channel(self.beta_slow or 1)
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, width - 1)
        frequencies = frequencies_of(width, base, position_ids.device)
        pairs = torch.arange(width // 2, device=position_ids.device).float()
        share = ((pairs - first) / ((last - first) or 0.001)).clamp(0, 1)
        return frequencies.lerp(frequencies / self.factor, share)


ROPE_SCALINGS: dict[str, type[RopeScaling]] = {
    "default": NoScaling,
    "linear": LinearScaling,
    "dynamic": DynamicScaling,
    "llama3": Llama3Scaling,
    "yarn": YarnScaling,
}


def build_rope_scaling(described: Mapping[str, Any] | None, max_position_embeddings: int) -> RopeScaling:
    """Build what the field `rope_scaling` of a configuration describes.

    As in transformers, `max_position_embeddings` is the length of the first training unless another one is
    given; for "dynamic" it always is.

    Raises:
        ValueError: The description names no known type, or not exactly its numbers.
    """
    numbers: dict[str, Any] = dict(described or {"rope_type": "default"})
    name = str(numbers.pop("rope_type", None))
    if name not in ROPE_SCALINGS:
        raise ValueError(f"rope_scaling has the rope_type {name!r}: choose one of {', '.join(ROPE_SCALINGS)}")
    known = {field.name: field for field in fields(ROPE_SCALINGS[name]) if field.name != ORIGINAL_LENGTH}
    known.pop("max_position_embeddings", None)
    original = numbers.pop(ORIGINAL_LENGTH, max_position_embeddings)
    required = [field.name for field in known.values() if field.default is MISSING]
    if not set(required) <= set(numbers) <= set(known):
        raise ValueError(
            f"rope_scaling of rope_type {name!r} has {sorted(numbers)}: give exactly {required} beside it"
            + (f", and any of {sorted(set(known) - set(required))}" if len(known) > len(required) else "")
        )
    for key, value in (numbers | {ORIGINAL_LENGTH: original}).items():
        is_number = isinstance(value, int | float) and value > 0
        if not (
            is_number or (key == "truncate" and value is False) or (value is None and key not in required)
        ):
            raise ValueError(f"rope_scaling has the {key} {value!r}: choose a number above 0")
    lengths = {ORIGINAL_LENGTH: original, "max_position_embeddings": max_position_embeddings}
    own = {field.name for field in fields(ROPE_SCALINGS[name])}
    return ROPE_SCALINGS[name](**numbers, **{key: value for key, value in lengths.items() if key in own})


def frequencies_of(width: int, base: float, device: torch.device) -> Tensor:
    """One over wavelength, 1 / base^(2i/width), in radians per position and float32: (width/2,)."""
    exponents = torch.arange(0, width, 2, device=device).float() / width
    return base**-exponents
