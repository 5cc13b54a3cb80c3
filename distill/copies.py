"""Text that is the same whenever it is read: what a teacher has read once, it need not read again.

Masked text is fixed in some copies, each masked otherwise, and epochs take turns with them:

    epoch      0       1       2       3                   of two copies
    copy       0       1       0       1
    numbers    0..E-1  E..2E-1 0..E-1  E..2E-1             by which examples are told apart, and masked

Shapes: E examples, S picked examples.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..objectives.token_objective import TokenObjective
from ..training.examples import Examples, ExampleSource, PackableExamples, PackedExamples, pick
from ..training.objective import Example
from ..training.packing import Ragged


class Copies:
    """An `ExampleSource` of numbered copies of another one's first epoch.

    Args:
        source: What is copied.
        number: How many copies there are.
    """

    def __init__(self, source: ExampleSource, number: int):
        self.examples = source.epoch(0)
        self.number = number

    def epoch(self, number: int) -> Examples:
        """Give the examples of an epoch: one of the copies."""
        return self.copy(number % self.number)

    def copy(self, number: int) -> "NumberedCopy":
        """Give a copy."""
        return NumberedCopy(self.examples, number * len(self.examples))


class NumberedCopy(PackableExamples):
    """The same examples under other numbers.

    Args:
        examples: What is copied.
        offset: Number of the first one.
    """

    def __init__(self, examples: Examples, offset: int):
        self.examples = examples
        self.offset = offset

    @property
    def lengths(self) -> np.ndarray:
        """Count the tokens of each, (E,)."""
        return self.examples.lengths

    def __len__(self) -> int:
        """Count the examples, E."""
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        """Make one of them."""
        return self.examples[index] | {"index": index + self.offset}

    def pack(self, indices: np.ndarray) -> Any:
        """Prepare many at once."""
        chosen: Sequence[Example] = pick(self.examples, indices)
        if not isinstance(chosen, PackedExamples):
            return [self[int(index)] for index in indices]
        packed = PackedExamples(self, indices, chosen.makers)
        numbered = indices + self.offset
        packed.makers["index"] = lambda: Ragged(numbered, np.ones_like(numbered))
        return packed


def require_fixed(base: TokenObjective, copies: int) -> None:
    """Raise a `ValueError` if an objective corrupts text anew whenever it is read, or all copies alike."""
    if base.noise == "dynamic":
        raise ValueError(
            f"general.cache needs a fixed input, but {base.term} corrupts the text differently each time: "
            f"set general.objective.masking=static (masked_language_modeling; "
            "cache.copies sets the number of different masks), or leave cache out"
        )
    if copies > 1 and base.noise == "none":
        raise ValueError(
            f"general.cache.copies is {copies}, but {base.term} corrupts nothing, so all copies would be "
            f"equal: leave it out"
        )
