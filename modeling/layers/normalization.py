"""Normalization of each token's vector, by its own statistics alone.

Layer norm (Ba et al., 2016) centers and scales the C channels of one token; root-mean-square norm (Zhang and
Sennrich, 2019) only scales. Neither looks at other tokens or other sequences, which is why ragged batches
are safe.
"""

from torch import Tensor, nn

from ..configuration_neural import NeuralConfig
from ..configuration_tercet import TercetConfig


def build_norm(config: NeuralConfig, width: int | None = None) -> nn.Module:
    """Build the norm that `config` names, over `width` channels; `None`: the model's."""
    width = width or config.hidden_size
    if config.norm_type == "layer_norm":
        return nn.LayerNorm(width, eps=config.norm_eps, bias=config.norm_bias)
    return RMSNorm(width, eps=config.norm_eps)


class RMSNorm(nn.RMSNorm):
    """Root-mean-square norm in the type of its weights, as autocast computes layer norm."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalize each token's vector (..., C)."""
        return super().forward(x.to(self.weight.dtype))


class HeadRMSNorm(RMSNorm):
    """Root-mean-square norm of each head of queries or keys, with a result in the type of the heads.

    Attention wants queries and keys of the type of values, which under autocast is not that of the weights.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalize each head (..., D)."""
        return super().forward(x).to(x.dtype)


def build_head_norm(config: TercetConfig) -> nn.Module:
    """Build the norm of the heads of queries, or of keys, if `config` has one."""
    if not config.use_qk_norm:
        return nn.Identity()
    assert config.head_dim is not None  # every configuration fills it in
    return HeadRMSNorm(config.head_dim, eps=config.norm_eps)
