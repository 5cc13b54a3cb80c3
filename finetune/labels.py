"""Labels: which there are, what they are called, and which number each has.

A column holds names, or the numbers 0, 1, ... of names that the data set or the recipe knows.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, List

from .rows import values_of


class Labels:
    """The names of a task's labels, in the order of their numbers.

    Args:
        names: At least two, each once.

    Raises:
        ValueError: There are fewer: nothing could be learned.
    """

    def __init__(self, names: Sequence[str]):
        if len(names) < 2:
            raise ValueError(
                f"all labels are {names[0]!r}: there is nothing to learn where nothing differs"
                if names
                else "there are no labels"
            )
        self.names = list(names)
        self.numbers = {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        """Count the labels."""
        return len(self.names)

    @property
    def config_fields(self) -> dict[str, Any]:
        """The names as a configuration keeps them."""
        return {"id2label": dict(enumerate(self.names)), "label2id": dict(self.numbers)}

    def number(self, value: Any, row: int, column: str) -> int:
        """Give the number of a label as it stands in a row.

        Raises:
            ValueError: It is none of the labels.
        """
        if is_number(value) and 0 <= int(value) < len(self) and str(value) not in self.numbers:
            return int(value)
        if str(value) not in self.numbers:
            raise ValueError(
                f"row {row + 1} has the label {value!r} in column {column!r}, which is none of "
                f"{', '.join(self.names[:20])}: correct it, or train with rows that have it"
            )
        return self.numbers[str(value)]

    def numbers_of(self, rows: Dataset, column: str) -> np.ndarray:
        """Give the numbers of a column of labels, (E,)."""
        values = values_of(rows, column)
        return np.array([self.number(value, row, column) for row, value in enumerate(values)], dtype=np.int64)


def find_labels(rows: Dataset, column: str, names: Sequence[str] = ()) -> Labels:
    """Find the labels of a column, whose values are labels or lists of labels.

    Names come from the recipe, else from the data set, else they are the values: numbers in their order,
    others in that of the alphabet.

    Raises:
        ValueError: There are fewer than two, or more numbers than names.
    """
    feature = rows.features[column]
    feature = feature.feature if isinstance(feature, List) else feature
    values = set(flat(values_of(rows, column)))
    known = list(names) or (list(feature.names) if isinstance(feature, ClassLabel) else [])
    if not known:
        if all(is_number(value) for value in values):
            whole = sorted({int(value) for value in values})
            return Labels([str(value) for value in whole])
        return Labels(sorted(map(str, values)))
    labels = Labels(known)
    for value in values:
        if is_number(value) and not 0 <= int(value) < len(known):
            raise ValueError(
                f"column {column!r} has the number {value}, but there are {len(known)} names "
                f"({', '.join(known)}): name all in task.label_names"
            )
    if len(values) < 2:
        Labels([str(value) for value in values])  # raises: all are the same
    return labels


def flat(values: Iterable[Any]) -> Iterable[Any]:
    """List the values in lists, or those that stand alone."""
    for value in values:
        if isinstance(value, list):
            yield from value
        else:
            yield value


def is_number(value: Any) -> bool:
    """Tell whether a value is a whole number, as a number."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
