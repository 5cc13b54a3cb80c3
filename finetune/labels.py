"""Labels: which there are, what they are called, and which number each has.

A column holds names, or the numbers 0, 1, ... of names that the data set or the recipe knows. How a file
writes a label does not matter: 1, 1.0 and "1" are the same one, and so are true and "True".
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, List

from ..text.bad_records import RowError, listed
from ..text.row_files import WHOLE
from ..text.rows import lists_of, values_of

WHOLE_LABEL = re.compile(rf"(?P<number>{WHOLE.pattern})(\.0*)?", re.ASCII)
"""A whole number as tables write it: 1, or 1.0 where others have gaps."""

TRUTHS = {"False": 0, "True": 1}
"""What truths are called, and which of two labels they stand for."""


class Labels:
    """The names of a task's labels, in the order of their numbers.

    Args:
        names: At least two, each once.
        are_numbered: Whether a column may write their numbers instead.

    Raises:
        ValueError: There are fewer, so that nothing could be learned, or one is there twice.
    """

    def __init__(self, names: Sequence[str], are_numbered: bool = True):
        if len(names) < 2:
            raise ValueError(
                f"all labels are {names[0]!r}: there is nothing to learn"
                if names
                else "there are no labels: name a column that has some"
            )
        self.names = list(names)
        self.numbers = {name: number for number, name in enumerate(self.names)}
        if len(self.numbers) < len(names):
            raise ValueError(f"some labels have the same name {listed(names)}: use each name once")
        self.are_numbered = are_numbered
        self.spellings = self.numbers | (spellings_of_numbers(self.names) if are_numbered else {})

    @property
    def are_integers(self) -> bool:
        """Whether the labels are whole numbers, not names: predictions then are numbers, too."""
        return all(map(WHOLE.fullmatch, self.names))

    def value(self, number: int) -> str | int:
        """Give a label as predictions write it.

        >>> [Labels(names).value(1) for names in (["bad", "good"], ["1", "5"])]
        ['good', 5]
        """
        name = self.names[number]
        return int(name) if self.are_integers else name

    def __len__(self) -> int:
        """Count the labels."""
        return len(self.names)

    @property
    def facts(self) -> dict[str, Any]:
        """What a task keeps of them, for `Labels.of`."""
        return {"labels": self.names, "are_numbered": self.are_numbered}

    @staticmethod
    def of(facts: Mapping[str, Any]) -> "Labels":
        """Make them of what a task has kept."""
        return Labels(facts["labels"], facts["are_numbered"])

    @property
    def config_fields(self) -> dict[str, Any]:
        """The names as a configuration keeps them."""
        return {"id2label": dict(enumerate(self.names)), "label2id": dict(self.numbers)}

    def number(self, value: Any, row: int, column: str) -> int:
        """Give the number of a label as it stands in a row.

        Raises:
            RowError: It is none of the labels.
        """
        found = self.spellings.get(written(value, row, column))
        if found is None:
            raise RowError(
                row,
                f"has the label {value!r} in column {column!r}, which is none of {listed(self.names)}: "
                "correct it, or train with rows that have it",
                f"has a label in column {column!r} that is none of the names",
            )
        return found

    def numbers_of(self, rows: Dataset, column: str) -> np.ndarray:
        """Give the numbers of a column of labels, (E,)."""
        values = values_of(rows, column)
        return np.array([self.number(value, row, column) for row, value in enumerate(values)], dtype=np.int64)


def find_labels(rows: Dataset, column: str, names: Sequence[str] = (), *, are_lists: bool = False) -> Labels:
    """Find the labels of a column, whose values are labels, or lists of labels.

    Names come from the recipe, else from the data set, else they are the values: numbers in their order,
    others in that of the alphabet. Whoever wrote those names has numbered nothing.

    Raises:
        ValueError: There are fewer than two, some have no name, or a value is no label, or no list of them.
    """
    found = listed_values(rows, column) if are_lists else enumerate(values_of(rows, column))
    values = {written(value, row, column) for row, value in found}
    known = names_known(rows, column, names)
    if not known:
        names = sorted(values, key=int if all(map(WHOLE.fullmatch, values)) else str)
        return Labels(names, are_numbered=False)
    require_plain_names(known)
    labels = Labels(known)
    if nameless := sorted(values - set(labels.spellings)):
        raise ValueError(
            f"column {column!r} has {nameless[0]!r}, which is none of the {len(known)} names "
            f"{listed(known)}: name all in task.label_names"
        )
    if len(values) < 2:
        Labels([labels.names[labels.spellings[value]] for value in values])  # raises: nothing differs
    return labels


def names_known(rows: Dataset, column: str, names: Sequence[str] = ()) -> list[str]:
    """Give the names of a column's labels if the recipe or else the data set has any, in their order."""
    feature = rows.features[column]
    feature = feature.feature if isinstance(feature, List) else feature
    return list(names) or (list(feature.names) if isinstance(feature, ClassLabel) else [])


def labels_known(rows: Dataset, column: str, names: Sequence[str]) -> Labels | None:
    """Give the labels whose names the recipe or else the data set knows, or `None`."""
    known = names_known(rows, column, names)
    return Labels(known) if len({*known}) > 1 else None


def require_labels(values: Iterable[tuple[int, Any]], column: str, known: Labels | None) -> None:
    """Make sure that values, which come with their rows, are labels, and among those that are known.

    Raises:
        RowError: One is none.
    """
    for row, value in values:
        if known is None:
            written(value, row, column)
        else:
            known.number(value, row, column)


def spellings_of_numbers(names: Sequence[str]) -> dict[str, int]:
    """Say how a column may write labels instead of their names.

    >>> spellings_of_numbers(["bad", "good"])
    {'False': 0, 'True': 1, '0': 0, '1': 1}

    Names that are numbers themselves leave no room for others.
    """
    if any(map(WHOLE.fullmatch, names)) or not TRUTHS.keys().isdisjoint(names):
        return {}
    truths = TRUTHS if len(names) == len(TRUTHS) else {}
    return truths | {str(number): number for number in range(len(names))}


def require_plain_names(names: Sequence[str]) -> None:
    """Raise a `ValueError` if the name of a label could be taken for the number of another one."""
    for number, name in enumerate(names):
        if WHOLE.fullmatch(name) and int(name) != number:
            raise ValueError(
                f"label {number} has the name {name!r}, which looks like another number: set "
                f"task.label_names to names with letters"
            )


def written(value: Any, row: int, column: str) -> str:
    """Write a label as its name, however a file writes it.

    Raises:
        RowError: It is no label.
    """
    if isinstance(value, str) and (whole := WHOLE_LABEL.fullmatch(value.strip())):
        return str(int(whole["number"]))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if not isinstance(value, str | int) or value == "":
        raise RowError(
            row,
            f"has {value!r} in column {column!r}, which is no label: labels are names or whole numbers; "
            "correct it",
            f"has no label in column {column!r}",
        )
    return str(value)


def listed_values(rows: Dataset, column: str) -> Iterator[tuple[int, Any]]:
    """List the values in the lists of a column, with their rows.

    Raises:
        RowError: A row has no list.
    """
    for row, values in enumerate(lists_of(rows, column, "labels")):
        yield from ((row, value) for value in values)
