"""Positions: how a Transformer knows the order of its tokens.

Attention alone is blind to order. Absolute positions are added to the embeddings; relative ones turn queries
and keys so that only distances reach the scores, or add a bias to these (`attention/relative_bias.py`). A
variant is a small class. None holds buffers, so all serve padded, packed and cached sequences alike.

Longer sequences than a model was first trained on need rotary positions of stretched wavelengths. Each method
is a small class, chosen by what transformers calls `rope_type`, and its numbers have transformers' names. It
changes the frequencies, in radians per position.

Shapes: B batch, T positions, E width of token vectors, H heads, D head width, R channels of a head that are
turned, in R/2 pairs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from ..attention.patterns import PATTERNS
from ..attention.relative_bias import LinearBias, NoBias, RelativeBias
from ..compatibility import is_tracing

ORIGINAL_LENGTH = "original_max_position_embeddings"
"""Length of the sequences of the first training: transformers may state it with any type, used or not."""


@dataclass(frozen=True)
class RopeScaling(ABC):
    """How frequencies are changed, by a `factor`, for texts longer than in the first training. Abstract.

    Those had at most `original_max_position_embeddings` tokens, or `max_position_embeddings`.
    """

    @property
    def attention_factor(self) -> float:
        """Factor of cosines and sines, and so, squared, of the scores of attention."""
        return 1.0

    @abstractmethod
    def stretch(self, base: float, width: int, position_ids: Tensor) -> Tensor:
        """Return frequencies (R/2,) of `width` = R channels for positions (B, T): see `frequencies_of`."""


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


Rotation = tuple[Tensor, Tensor]
"""Cosines of every position's angles and sines, the first half of these negated: (B, 1, T, R), in float32."""


class NoPositions(nn.Module):
    """Sequences without order; also what the variants below share. A model of bags of tokens.

    Args:
        config: A `TercetConfig`.
    """

    bias: ClassVar[type[NoBias]] = NoBias
    """What adds a bias to the scores of attention: one for all layers of a stack, which builds it."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.config = config

    @classmethod
    def require(cls, config: PreTrainedConfig) -> None:
        """Raise a `ValueError` unless the fields of a `TercetConfig` suit these positions."""

    def embed(self, position_ids: Tensor) -> Tensor | float:
        """Return what is added to the token embeddings, (B, T, E) or 0."""
        return 0.0

    def rotation(self, position_ids: Tensor, layer_type: str = "full_attention") -> Rotation | None:
        """Return the angles by which attention of a type of layer turns queries and keys, if it does."""
        return None


class LearnedPositions(NoPositions):
    """A trained vector for every position (Gehring et al., 2017; BERT, GPT-2; BART with an offset of 2)."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.embed_positions = nn.Embedding(
            config.max_position_embeddings + config.position_offset, config.embedding_width
        )

    def embed(self, position_ids: Tensor) -> Tensor:
        """Look up the vectors of `position_ids` (B, T).

        Raises:
            ValueError: If a position lies behind the table (checked on the CPU, where this costs nothing).
        """
        limit = self.config.max_position_embeddings
        can_check = position_ids.is_cpu and not is_tracing()
        if can_check and (last := int(position_ids.max())) >= limit:
            raise ValueError(
                f"a sequence of {last + 1} tokens is longer than max_position_embeddings ({limit}): "
                "shorten it, or build the model with more positions"
            )
        return self.embed_positions(position_ids + self.config.position_offset)


class SinusoidalPositions(NoPositions):
    """Sines and cosines of geometrically growing wavelengths (Vaswani et al., 2017, section 3.5).

    PE(t, 2i) = sin(t / 10000^(2i/E)) and PE(t, 2i+1) = cos(t / 10000^(2i/E)).
    """

    @classmethod
    def require(cls, config: PreTrainedConfig) -> None:
        """Raise a `ValueError` unless token vectors have pairs of channels."""
        if config.embedding_width % 2:
            name = "hidden_size" if config.embedding_size is None else "embedding_size"
            raise ValueError(
                f"{name} ({config.embedding_width}) must be even, as sinusoidal positions pair a sine with a "
                "cosine"
            )

    def embed(self, position_ids: Tensor) -> Tensor:
        """Compute the vectors of `position_ids` (B, T) in float32, sine and cosine interleaved."""
        return torch.stack(self.waves(position_ids), dim=-1).flatten(start_dim=-2)

    def waves(self, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Sines and cosines of every wavelength, each (B, T, E/2)."""
        angles = angles_of(
            position_ids, frequencies_of(self.config.embedding_width, 10_000.0, position_ids.device)
        )
        return angles.sin(), angles.cos()


class SplitSinusoidalPositions(SinusoidalPositions):
    """The same waves, all sines before all cosines: the layout of tensor2tensor and Marian."""

    def embed(self, position_ids: Tensor) -> Tensor:
        """Compute the vectors of `position_ids` (B, T), sines in the first half of the channels."""
        return torch.cat(self.waves(position_ids), dim=-1)


class RotaryPositions(NoPositions):
    """Angles between queries and keys that depend on their distance only (Su et al., 2021, section 3.2.2).

    The channels of a pair are R/2 apart, the layout of GPT-NeoX and LLaMA.
    """

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.rotary_emb = RotaryEmbedding(config)

    @classmethod
    def require(cls, config: PreTrainedConfig) -> None:
        """Raise a `ValueError` unless heads have pairs of channels to turn."""
        if config.rotary_dim not in range(2, config.head_dim + 1, 2):
            raise ValueError(
                f"head_dim ({config.head_dim}) * partial_rotary_factor ({config.partial_rotary_factor}) is "
                f"{config.rotary_dim}, but rotary positions rotate pairs of a head's channels: choose an "
                "even head size and a factor of at most 1, or another position_embedding_type"
            )

    def rotation(self, position_ids: Tensor, layer_type: str = "full_attention") -> Rotation:
        """Angles of `position_ids` (B, T)."""
        cos, sin = self.rotary_emb.turns(position_ids, layer_type)
        left, right = sin.chunk(2, dim=-1)
        return cos[:, None], torch.cat((-left, right), dim=-1)[:, None]


class RotaryEmbedding(nn.Module):
    """Angles of positions, in the form and under the name that transformers' tools look for."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        config.update_from_rope_parameters()
        self.width = config.rotary_dim
        self.scaling = build_rope_scaling(config.rope_scaling, config.max_position_embeddings)
        base = float(config.rope_theta)
        local = base if config.local_rope_theta is None else float(config.local_rope_theta)
        self.bases = {kind: local if pattern.is_local else base for kind, pattern in PATTERNS.items()}

    def forward(
        self, x: Tensor, position_ids: Tensor, layer_type: str = "full_attention"
    ) -> tuple[Tensor, Tensor]:
        """Cosines and sines (B, T, R) of `position_ids` (B, T), in the type of `x`."""
        cos, sin = self.turns(position_ids.to(x.device), layer_type)
        return cos.to(x.dtype), sin.to(x.dtype)

    @property
    def inv_freq(self) -> Tensor:
        """Frequencies (R/2,) in layers of full attention, for sequences as long as in training."""
        return self.scaling.stretch(self.bases["full_attention"], self.width, torch.zeros(1, 1))

    def turns(self, position_ids: Tensor, layer_type: str) -> tuple[Tensor, Tensor]:
        """Cosines and sines (B, T, R) in float32."""
        frequencies = self.scaling.stretch(self.bases[layer_type], self.width, position_ids)
        angles = angles_of(position_ids, frequencies)  # (B, T, R/2)
        angles = torch.cat((angles, angles), dim=-1)  # (B, T, R)
        if (factor := self.scaling.attention_factor) == 1:
            return angles.cos(), angles.sin()
        return angles.cos() * factor, angles.sin() * factor


class RelativePositions(NoPositions):
    """A learned bias by the distance between a query and a key (Raffel et al., 2020, section 2.1: T5)."""

    bias = RelativeBias


class LinearPositions(NoPositions):
    """A bias that falls with the distance between query and key (ALiBi: Press et al., 2022, section 3)."""

    bias = LinearBias


POSITIONS: dict[str, type[NoPositions]] = {
    "rotary": RotaryPositions,
    "learned": LearnedPositions,
    "sinusoidal": SinusoidalPositions,
    "sinusoidal_split": SplitSinusoidalPositions,
    "relative_bias": RelativePositions,
    "alibi": LinearPositions,
    "none": NoPositions,
}
"""By the field `position_embedding_type` of a configuration."""


def angles_of(position_ids: Tensor, frequencies: Tensor) -> Tensor:
    """Position times frequency, in float32: (B, T) and (R/2,) -> (B, T, R/2)."""
    return position_ids[..., None].float() * frequencies


def rotate(x: Tensor, by: Rotation | None) -> Tensor:
    """Turn each head vector (B, H, T, D) by its position's angles; the result keeps the type of `x`.

    Channels behind the first R are not turned.
    """
    if by is None:
        return x
    cos, sin = by
    if (width := cos.shape[-1]) < x.shape[-1]:
        return torch.cat((rotate(x[..., :width], by), x[..., width:]), dim=-1)
    return (x * cos + x.roll(width // 2, dims=-1) * sin).to(x.dtype)
