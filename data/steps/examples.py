"""The interface of data to the engine: examples that can be counted, fetched and drawn anew for every epoch.

An `Examples` is one epoch's list of examples; an `ExampleSource` gives such a list for every epoch. Data that
are the same in every epoch are both at once (`FixedExamples`).

A step needs hundreds of examples at once, and an objective soon lays their arrays end to end.
`PackableExamples` make them so from the beginning: what `pick` then returns still is a sequence of examples,
one dictionary each, but `gather` finds a field of all of them without making a single one. Both ways give the
same arrays.

Shapes: E examples, S picked examples, N tokens of theirs.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from .objective import INDEX, Example
from .packing import Ragged, ragged


@runtime_checkable
class Examples(Protocol):
    """A list of examples whose costs are known before any of them is made."""

    @property
    def lengths(self) -> np.ndarray:
        """Count the tokens that each example costs, (E,): batches are filled by these numbers."""
        ...

    def __len__(self) -> int:
        """Count the examples, E."""
        ...

    def __getitem__(self, index: int) -> Example:
        """Make one example, always the same one."""
        ...


@runtime_checkable
class ExampleSource(Protocol):
    """Where the examples of every epoch come from."""

    def epoch(self, number: int) -> Examples:
        """Return the examples of epoch `number`, counted from 0: a function of the number alone."""
        ...


class SharedSource(ABC):
    """An `ExampleSource` whose epochs are expensive: the run itself makes them, for its data workers, too."""

    @abstractmethod
    def share_with(self, num_workers: int) -> None:
        """Learn how many data workers, which are forked afterwards, read the epochs that are made here."""


class LeftOut(NamedTuple):
    """A part of a text that is in no example, and so in no score: too short to predict, or too long."""

    what: str
    """What is counted: `pairs`, `documents`, ..."""
    pieces: int
    """How many of these are left out."""
    all_pieces: int
    """How many there are."""
    tokens: int
    """Tokens of those that are left out."""
    all_tokens: int
    """Tokens of all."""
    reason: str
    """What is the matter with them, and what helps, as it goes on after `7 of 900 pairs`."""

    def describe(self, text: str) -> str:
        """Write how much of a text is left out, and why."""
        return (
            f"{text}: {self.pieces:,} of {self.all_pieces:,} {self.what} ({self.tokens:,} of "
            f"{self.all_tokens:,} tokens) {self.reason}"
        )


class PackableExamples(ABC):
    """`Examples` of which many can be made at once."""

    left_out: Sequence[LeftOut] = ()
    """What of the text is in none of them, by reasons."""

    @abstractmethod
    def pack(self, indices: np.ndarray) -> "PackedExamples":
        """Prepare the examples at `indices` (S,), to be made field by field."""


class FixedExamples(PackableExamples):
    """`PackableExamples` that are the same in every epoch, and so their own `ExampleSource`. Abstract."""

    def epoch(self, number: int) -> Self:
        return self


class PackedExamples(Sequence[Example]):
    """Some examples, each made when it is accessed, and each field of all of them likewise.

    Args:
        indices: Which they are (S,).
        makers: Makes a field of all of them, by its name: what their own arrays or numbers are, end to end.
            `index`, which they are, is added.
    """

    def __init__(self, examples: Examples, indices: np.ndarray, makers: Mapping[str, Callable[[], Ragged]]):
        self.examples = examples
        self.indices = indices
        self.makers = {**makers, "index": lambda: Ragged(indices, np.ones_like(indices))}

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        """Make one of the examples, or a slice of them as a list."""
        chosen = self.indices[index]
        if isinstance(index, slice):
            return [self.examples[int(number)] for number in chosen]
        return self.examples[int(chosen)]


def count_left_out(
    what: str, tokens: np.ndarray, is_left_out: np.ndarray, reason: str
) -> tuple[LeftOut, ...]:
    """Count what is left out of pieces of some `tokens` (n,), for one reason: nothing, or one entry."""
    pieces = int(is_left_out.sum())
    counts = pieces, len(tokens), int(tokens[is_left_out].sum()), int(tokens.sum())
    return (LeftOut(what, *counts, reason),) if pieces else ()


def left_out_of(examples: Examples) -> Sequence[LeftOut]:
    """Return what of a text is in none of its examples; those that are made one by one hold everything."""
    return examples.left_out if isinstance(examples, PackableExamples) else ()


def tell_of_left_out(left_out: Iterable[LeftOut], text: str) -> None:
    """Warn of what is in no example."""
    for part in left_out:
        warnings.warn(part.describe(text), stacklevel=2)


def pick(examples: Examples, indices: np.ndarray) -> Sequence[Example]:
    """Return the examples at `indices` (S,), which `index` tells; all at once where that is possible."""
    if isinstance(examples, PackableExamples):
        return examples.pack(indices)
    return [{INDEX: int(index)} | examples[int(index)] for index in indices]


def has_field(examples: Sequence[Example], name: str) -> bool:
    """Return whether examples, which all have the same fields, have this one."""
    return name in (examples.makers if isinstance(examples, PackedExamples) else examples[0])


def gather(examples: Sequence[Example], name: str) -> Ragged:
    """Return a field of all examples, end to end."""
    if isinstance(examples, PackedExamples):
        return examples.makers[name]()
    return ragged([example[name] for example in examples])
