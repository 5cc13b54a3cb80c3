"""Examples of a task: rows that a tokenizer has read, with their labels as numbers.

Shapes: E examples, S picked examples, N tokens of theirs.
"""

from collections.abc import Mapping

import numpy as np

from ..data.steps.examples import FixedExamples, PackedExamples
from ..data.steps.objective import Example
from ..data.steps.packing import Ragged, stretches


class LabelledExamples(FixedExamples):
    """Examples that lie in memory, each field end to end.

    Args:
        fields: What each example has: `input_ids`, `labels`, ... A number is an array of one.
    """

    def __init__(self, fields: Mapping[str, Ragged]):
        self.fields = dict(fields)
        streams = (field for name, field in fields.items() if name.endswith("input_ids"))
        self.lengths = np.sum([field.lengths for field in streams], axis=0)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Example:
        return {name: field[index] for name, field in self.fields.items()} | {"index": index}

    def pack(self, indices: np.ndarray) -> PackedExamples:
        makers = {name: lambda field=field: select(field, indices) for name, field in self.fields.items()}
        return PackedExamples(self, indices, makers)


def select(field: Ragged, indices: np.ndarray) -> Ragged:
    """Copy some arrays out of a field, end to end."""
    lengths = field.lengths[indices]
    return Ragged(field.values[stretches(field.edges[indices], lengths)], lengths)


def numbers(values: np.ndarray) -> Ragged:
    """Lay out a number for each example (E,)."""
    return Ragged(values, np.ones(len(values), dtype=np.int64))


def vectors(values: np.ndarray) -> Ragged:
    """Lay out a row of numbers for each example (E, L)."""
    return Ragged(values.ravel(), np.full(len(values), values.shape[1], dtype=np.int64))
