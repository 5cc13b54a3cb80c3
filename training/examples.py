"""What the engine asks of data: examples that can be counted, fetched and drawn anew for every epoch.

An `Examples` is one epoch's list of examples; an `ExampleSource` gives such a list for every epoch. Data that
are the same in every epoch are both at once: `epoch` returns the object itself.

Shapes: E examples.
"""

from typing import Protocol, runtime_checkable

import numpy as np

from .objective import Example


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
        """Make one example, the same one whenever it is asked for."""
        ...


@runtime_checkable
class ExampleSource(Protocol):
    """Where the examples of every epoch come from."""

    def epoch(self, number: int) -> Examples:
        """Return the examples of epoch `number`, counted from 0: a function of the number alone."""
        ...
