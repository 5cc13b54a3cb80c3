"""LSTM layers that read words in one direction, one above the other (Peters et al., 2018, section 3.4).

The output of a cell is projected, and the projection is what the cell reads at the next word (Sak et al.,
2014). From the second layer on, a layer adds what it read to what it says. The paper's implementation clips
cells and projections at 3, which torch's LSTM cannot: clip the gradients instead.

Shapes: S sequences, W words of the longest, D width of a direction.
"""

import warnings
from typing import cast

from torch import Tensor, nn
from transformers import initialization as init

from .configuration_elmo import TercetElmoConfig
from .dropout import Dropout

# It is the slower of two implementations on a CPU, and the only one with projections.
warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")


class ProjectedLSTM(nn.LSTM):
    """One layer of cells, whose gates begin open for what the cell remembers."""

    def __init__(self, config: TercetElmoConfig):
        width = config.direction_width
        super().__init__(width, config.lstm_cell_size, batch_first=True, proj_size=width)

    def draw(self) -> None:
        """Let the bias of the forget gates begin at 1 (Jozefowicz et al., 2015)."""
        size = self.hidden_size
        if not getattr(self.bias_ih_l0, "_is_hf_initialized", False):
            init.ones_(cast(Tensor, self.bias_ih_l0)[size : 2 * size])


class DirectedLayers(nn.Module):
    """The LSTM layers of one direction."""

    def __init__(self, config: TercetElmoConfig):
        super().__init__()
        self.layers = nn.ModuleList(ProjectedLSTM(config) for _ in range(config.num_hidden_layers))
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Read rows of words (S, W, D) from left to right: the states of each layer, (S, W, D)."""
        states: list[Tensor] = []
        for number in range(len(self.layers)):
            x = self.read(number, x)
            states.append(x)
        return states

    def read(self, number: int, x: Tensor) -> Tensor:
        """Read what the layer below a layer says of rows of words, (S, W, D) -> (S, W, D)."""
        output, _ = self.layers[number](self.dropout(x))
        return output + x if number else output
