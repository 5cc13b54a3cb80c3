"""What happens to a tensor between two houses: a rearrangement, which can be undone.

A stock tensor becomes one of ours or several, and the way back is defined beside the way there. All of them
are made of differentiable operations, so that gradients can be followed from one house to the other.

Shapes: C width of the input, R width of the result, H heads, D head width.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Place:
    """Where in a stock model a tensor lies.

    Args:
        config: The stock model's configuration.
        indices: The numbers in the tensor's name, of its layer first.
    """

    config: Any
    indices: tuple[int, ...]


class Rearrangement(ABC):
    """A way there and back. Abstract."""

    @abstractmethod
    def to_ours(self, tensors: list[Tensor], place: Place) -> list[Tensor]:
        """Turn stock tensors into ours."""

    @abstractmethod
    def to_stock(self, tensors: list[Tensor], place: Place) -> list[Tensor]:
        """Turn our tensors into stock ones: what `to_ours` undoes."""


class Transposed(Rearrangement):
    """GPT-2 keeps matrices as (C, R), `torch.nn.Linear` as (R, C)."""

    def to_ours(self, tensors: list[Tensor], place: Place) -> list[Tensor]:
        """Transpose each matrix."""
        return [tensor.mT for tensor in tensors]

    to_stock = to_ours


class AsOneRow(Rearrangement):
    """BART and its kin keep the vocabulary's bias as a matrix of one row."""

    def to_ours(self, tensors: list[Tensor], place: Place) -> list[Tensor]:
        """Take the row out, (1, R) -> (R,)."""
        return [tensor[0] for tensor in tensors]

    def to_stock(self, tensors: list[Tensor], place: Place) -> list[Tensor]:
        """Make it a matrix."""
        return [tensor[None] for tensor in tensors]


@dataclass(frozen=True)
class Chunked(Rearrangement):
    """Several layers of equal width that read the same input, kept as one: rows of the first, the second, ...

    Args:
        parts: How many.
    """

    parts: int

    def to_ours(self, tensors: list[Tensor], place: Place) -> list[Tensor]:
        """Cut the rows (R, ...)."""
        return [part for tensor in tensors for part in tensor.chunk(self.parts)]

    def to_stock(self, tensors: list[Tensor], place: Place) -> list[Tensor]:
        """Join them."""
        return [torch.cat(tensors)]


class ChunkedByHead(Rearrangement):
    """GPT-NeoX keeps queries, keys and values as one, head by head: (H * 3 * D, ...)."""

    def to_ours(self, tensors: list[Tensor], place: Place) -> list[Tensor]:
        """Collect the queries of all heads, their keys, their values."""
        (joined,) = tensors
        by_head = joined.unflatten(0, (place.config.num_attention_heads, 3, -1))
        return [part.flatten(0, 1) for part in by_head.unbind(1)]

    def to_stock(self, tensors: list[Tensor], place: Place) -> list[Tensor]:
        """Put each head's three beside each other."""
        by_head = [tensor.unflatten(0, (place.config.num_attention_heads, -1)) for tensor in tensors]
        return [torch.stack(by_head, dim=1).flatten(0, 2)]


@dataclass(frozen=True)
class FirstScaled(Rearrangement):
    """A factor that the stock model applies elsewhere, and ours has in the first of the tensors.

    Args:
        factor: Finds it, by what the stock configuration says.
    """

    factor: Callable[[Place], float]

    def to_ours(self, tensors: list[Tensor], place: Place) -> list[Tensor]:
        """Multiply."""
        return [tensors[0] * self.factor(place), *tensors[1:]]

    def to_stock(self, tensors: list[Tensor], place: Place) -> list[Tensor]:
        """Divide."""
        return [tensors[0] / self.factor(place), *tensors[1:]]


@dataclass(frozen=True)
class InTurn(Rearrangement):
    """Several rearrangements, one after the other.

    Args:
        steps: In the order of the way to us.
    """

    steps: tuple[Rearrangement, ...]

    def to_ours(self, tensors: list[Tensor], place: Place) -> list[Tensor]:
        """Take them forwards."""
        for step in self.steps:
            tensors = step.to_ours(tensors, place)
        return tensors

    def to_stock(self, tensors: list[Tensor], place: Place) -> list[Tensor]:
        """Take them backwards."""
        for step in reversed(self.steps):
            tensors = step.to_stock(tensors, place)
        return tensors
