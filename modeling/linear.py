"""The projection that writes into the residual stream."""

from torch import nn

from .configuration_tercet import TercetConfig


class ResidualLinear(nn.Linear):
    """Project a sub-layer's result back to the model's width.

    With the norm before the sub-layers, every layer adds to the stream twice and its variance grows with
    depth; the initial weights are smaller by 1 / sqrt(2 * layers) to keep it constant (Radford et al., 2019,
    section 2.3). The norm after the sub-layers needs no such care.
    """

    def __init__(self, config: TercetConfig, in_features: int, bias: bool):
        # Before the parameters exist, because initialization reads it.
        self.init_scale = (2 * config.num_hidden_layers) ** -0.5 if config.norm_placement == "pre" else 1.0
        super().__init__(in_features, config.hidden_size, bias=bias)
