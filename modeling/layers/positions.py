"""Positions: how a Transformer knows the order of its tokens.

Attention alone is blind to order. Absolute positions are added to the embeddings; relative ones turn queries
and keys so that only distances reach the scores, or add a bias to these (`attention/relative_bias.py`). A
variant is a small class. None holds buffers, so all serve padded, packed and cached sequences alike.

Longer sequences than a model was first trained on need rotary positions of stretched wavelengths. These are
transformers' own functions, chosen by `rope_type`; they change the frequencies, in radians per position. A
batch does not depend on those before it, and cached keys keep the angles at which they were computed.

Shapes: B batch, T positions, E width of token vectors, H heads, D head width, R channels of a head that are
turned, in R/2 pairs.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ..attention.patterns import PATTERNS
from ..attention.relative_bias import LinearBias, NoBias, RelativeBias
from ..compatibility import is_tracing


@dataclass
class RopeConfig:
    """What transformers' functions of stretched wavelengths read of a configuration.

    Args:
        rope_parameters: Those of the configuration, for one type of layer.
        head_dim: D.
        max_position_embeddings: Longest sequence of the first training, if the type is "dynamic".
        hidden_size: Read, and of no effect beside `head_dim`.
        num_attention_heads: The same.
    """

    rope_parameters: dict[str, Any]
    head_dim: int
    max_position_embeddings: int
    hidden_size: int = 1
    num_attention_heads: int = 1

    def standardize_rope_params(self) -> None:
        """Leave the parameters as they are."""

    def frequencies(self, position_ids: Tensor) -> tuple[Tensor, float]:
        """Return frequencies (R/2,) for positions (B, T), and a factor of cosines and sines."""
        name, device = self.rope_parameters["rope_type"], position_ids.device
        width = int(self.head_dim * self.rope_parameters["partial_rotary_factor"])
        if name == "default" or (name == "dynamic" and width == 2):  # two turn by the frequency 1
            return frequencies_of(width, float(self.rope_parameters["rope_theta"]), device), 1.0
        length: Any = position_ids.max() + 1 if name == "dynamic" else None
        return ROPE_INIT_FUNCTIONS[name](cast(PreTrainedConfig, self), device, length)


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
        limit = self.config.max_position_embeddings
        can_check = position_ids.is_cpu and not is_tracing()  # elsewhere it would cost something
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
        if config.embedding_width % 2:
            name = "hidden_size" if config.embedding_size is None else "embedding_size"
            raise ValueError(
                f"{name} ({config.embedding_width}) must be even, as sinusoidal positions pair a sine with a "
                "cosine"
            )

    def embed(self, position_ids: Tensor) -> Tensor:
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
        return torch.cat(self.waves(position_ids), dim=-1)


class RotaryPositions(NoPositions):
    """Angles between queries and keys that depend on their distance only (Su et al., 2021, section 3.2.2).

    The channels of a pair are R/2 apart, the layout of GPT-NeoX and LLaMA.
    """

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.rotary_emb = RotaryEmbedding(config)

    def rotation(self, position_ids: Tensor, layer_type: str = "full_attention") -> Rotation:
        cos, sin = self.rotary_emb.turns(position_ids, layer_type)
        left, right = sin.chunk(2, dim=-1)
        return cos[:, None], torch.cat((-left, right), dim=-1)[:, None]


class RotaryEmbedding(nn.Module):
    """Angles of positions, in the form and under the name that transformers' tools look for."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        config.standardize_rope_params()  # they may have been changed in place
        config.validate_rope()
        self.configs = {
            kind: RopeConfig({**config.rotation_of(kind)}, config.head_dim, config.max_position_embeddings)
            for kind in PATTERNS
        }

    def forward(
        self, x: Tensor, position_ids: Tensor, layer_type: str = "full_attention"
    ) -> tuple[Tensor, Tensor]:
        """Cosines and sines (B, T, R) of `position_ids` (B, T), in the type of `x`."""
        cos, sin = self.turns(position_ids.to(x.device), layer_type)
        return cos.to(x.dtype), sin.to(x.dtype)

    @property
    def inv_freq(self) -> Tensor:
        """Frequencies (R/2,) in layers of full attention, for sequences as long as in training."""
        return self.configs["full_attention"].frequencies(torch.zeros(1, 1))[0]

    def turns(self, position_ids: Tensor, layer_type: str) -> tuple[Tensor, Tensor]:
        """Cosines and sines (B, T, R) in float32."""
        frequencies, factor = self.configs[layer_type].frequencies(position_ids)
        angles = angles_of(position_ids, frequencies)  # (B, T, R/2)
        angles = torch.cat((angles, angles), dim=-1)  # (B, T, R)
        if factor == 1:
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
