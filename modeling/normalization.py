"""Normalization of each token's vector, by its own statistics alone.

Layer norm (Ba et al., 2016) centers and scales the C channels of one token; root-mean-square norm (Zhang and
Sennrich, 2019) only scales. Neither looks at other tokens or other sequences, which is why ragged batches
are safe.
"""

from torch import nn

from .configuration_tercet import TercetConfig


def build_norm(config: TercetConfig, width: int | None = None) -> nn.Module:
    """Build the norm that `config` names, over `width` channels; `None`: the model's."""
    width = width or config.hidden_size
    if config.norm_type == "layer_norm":
        return nn.LayerNorm(width, eps=config.norm_eps, bias=config.norm_bias)
    return nn.RMSNorm(width, eps=config.norm_eps)
