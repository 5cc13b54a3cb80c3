"""What a token sees, drawn as text: which pairs each type of layer of a model lets attend.

A row is a query, a column a key. A text longer than the drawing is wide is drawn in cells of several tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from ..modeling.attention_patterns import AttentionPattern
from ..modeling.stack import TercetStack

WIDTH = 32
"""Cells of a row, at most."""

LONGEST = 2048
"""Tokens of the text that is drawn, at most."""

NONE, SOME, ALL = ".", "+", "#"
LEGEND = f"{ALL} all pairs, {SOME} some, {NONE} none"


@dataclass(frozen=True)
class Drawing:
    """The map of one type of layers.

    Args:
        stack: The member whose stack they are in, such as "encoder".
        layer_type: As the configuration names it.
        layers: Their numbers, from 0.
        num_tokens: Length of the text.
        tokens_per_cell: Tokens on each side of a cell.
        rows: A character for each cell: see `LEGEND`.
    """

    stack: str
    layer_type: str
    layers: list[int]
    num_tokens: int
    tokens_per_cell: int
    rows: list[str]

    @property
    def title(self) -> str:
        """Say whose map it is."""
        numbers = ", ".join(map(str, self.layers))
        return f"{self.stack}, {self.layer_type}, layer{'s' * (len(self.layers) > 1)} {numbers}"

    def lines(self) -> Iterator[str]:
        """Write the title, and the rows below it."""
        size = self.tokens_per_cell
        yield self.title
        yield f"{self.num_tokens} tokens, {size} to a cell; a row is what a token sees: {LEGEND}"
        yield from self.rows


def draw_attention(model: PreTrainedModel) -> list[Drawing]:
    """Draw each type of layers of each stack of a model; those of foreign models are not known."""
    stacks = [each for each in model.modules() if isinstance(each, TercetStack)]
    return [draw_layers(stack, kind, pattern) for stack in stacks for kind, pattern in stack.patterns.items()]


def draw_layers(stack: TercetStack, kind: str, pattern: AttentionPattern) -> Drawing:
    """Draw the map of one type of layers, in a text as long as the model reads, or `LONGEST`."""
    length = min(stack.config.max_position_embeddings, LONGEST)
    size = -(-length // WIDTH)
    layers = [number for number, each in enumerate(stack.config.types_of_layers) if each == kind]
    rows = ["".join(map(character, row)) for row in shares(pattern.map_of(length), size).tolist()]
    return Drawing(stack.config.model_type.removeprefix("tercet_"), kind, layers, length, size, rows)


def shares(allowed: Tensor, size: int) -> Tensor:
    """Give the share of pairs (T, T) that are allowed in each cell of `size` tokens."""
    return F.avg_pool2d(allowed[None].to(torch.float64), size, ceil_mode=True)[0]


def character(share: float) -> str:
    """Draw a cell by the share of its pairs that may attend."""
    return NONE if share == 0 else ALL if share == 1 else SOME
