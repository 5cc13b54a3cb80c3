"""Labels: which there are, what they are called, and which number each has.

A column holds names, or the numbers 0, 1, ... of names that the data set or the recipe knows. Numbers that a
data set names are read as these names, since each split may number its own. How a file writes a label does
not matter: 1, 1.0 and "1" are the same one, and so are true and "True"; beside names or numbers like 1.5, a
text 1.0 is a name itself. White space at its ends is no part of a name, within it all white space is one
space, an accent is one with its letter, and what cannot be seen is left out.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, List

from ...data.files.bad_rows import RowError
from ...data.files.columns import WHOLE, lists_of, plain, require_from_zero, values_of
from ...data.files.problems import listed
from .recipes import KIND

WHOLE_LABEL = re.compile(rf"(?P<number>{WHOLE.pattern})(\.0*)?", re.ASCII)
"""A whole number as tables write it: 1, or 1.0 where others have gaps."""

TRUTHS = {"False": 0, "True": 1}
"""What truths are called, and which of two labels they stand for."""


KINDS: dict[str, Callable[[str], Any]] = {"text": str, "integer": int, "truth": "True".__eq__}
"""Kind of the labels that rows have -> what makes it of a label's name."""

NO_LABELS = "there are no labels: name a column that has some"

MOST_SHOWN = 8
"""Spellings of labels that a warning shows."""


class Labels:
    """The names of a task's labels, in the order of their numbers.

    Args:
        names: At least one, each once.
        are_numbered: Whether a column may write their numbers instead.
        renamed: What the data set calls them, in the same order, where the recipe has other names for them.
        kind: What predictions write for a name, as the training rows have it.
    """

    def __init__(
        self,
        names: Sequence[str],
        are_numbered: bool = True,
        renamed: Sequence[str] = (),
        kind: str = "text",
    ):
        if not names:
            raise ValueError(NO_LABELS)
        self.names = list(map(plain, names))
        self.numbers = {name: number for number, name in enumerate(self.names)}
        if len(self.numbers) < len(names):
            raise ValueError(f"some labels have the same name {listed(self.names)}: use each name once")
        self.are_numbered = are_numbered
        self.renamed, self.kind = list(renamed), kind
        has_numbers = are_numbered and not any(map(WHOLE.fullmatch, self.renamed))
        others = spellings_of_numbers(self.names) if has_numbers else {}
        self.spellings = self.numbers | others | {name: number for number, name in enumerate(self.renamed)}

    def value(self, number: int) -> str | int | bool:
        """Return a label as predictions write it.

        >>> [Labels(["1", "5"], kind=kind).value(1) for kind in ("text", "integer")]
        ['5', 5]
        """
        return KINDS[self.kind](self.names[number])

    def __len__(self) -> int:
        return len(self.names)

    @property
    def facts(self) -> dict[str, Any]:
        """What a task keeps of them, for `Labels.of`."""
        renamed = {"renamed": self.renamed} if self.renamed else {}
        return {"labels": self.names, "are_numbered": self.are_numbered, KIND: self.kind} | renamed

    @staticmethod
    def of(facts: Mapping[str, Any]) -> "Labels":
        """Make them of what a task has kept; if that is no kind, whole numbers are integers."""
        names = facts["labels"]
        kind = facts.get(KIND) or kind_of(names, {int})
        return Labels(names, facts["are_numbered"], facts.get("renamed", ()), kind)

    @property
    def config_fields(self) -> dict[str, Any]:
        """The names as a configuration keeps them."""
        return {"id2label": dict(enumerate(self.names)), "label2id": dict(self.numbers)}

    def number(self, value: Any, row: int, column: str) -> int:
        """Return the number of a label as it stands in a row."""
        found = self.spelled(written(value, row, column))
        if found is None:
            raise RowError(
                row,
                f"has the label {value!r} in column {column!r}, which is none of {listed(self.names)}: "
                "correct it, or train with rows that have it",
                f"has a label in column {column!r} that is none of the names",
            )
        return found

    def spelled(self, name: str) -> int | None:
        """Return the number of the label that a name or number stands for, if there is one."""
        return self.spellings.get(name, self.spellings.get(as_whole(name)))

    def numbers_of(self, rows: Dataset, column: str) -> np.ndarray:
        """Return the numbers of a column of labels, (E,)."""
        values = label_values(rows, column)
        return np.array([self.number(value, row, column) for row, value in enumerate(values)], dtype=np.int64)


def find_labels(
    rows: Dataset, column: str, names: Sequence[str] = (), *, are_lists: bool = False, least: int = 2
) -> Labels:
    """Find the labels of a column, whose values are labels, or lists of labels.

    Names come from the recipe, else from the data set, else they are the values: numbers in their order,
    others in that of the alphabet. Whoever wrote those names has numbered nothing.
    """
    found = listed_values(rows, column) if are_lists else enumerate(label_values(rows, column))
    values, texts, types = set[str](), Counter[str](), set[type]()
    for row, value in found:
        values.add(written(value, row, column))
        types.add(type(value))
        if isinstance(value, str):
            texts[value] += 1
    known = named_labels(rows, column, names)
    are_whole = not known and all(map(WHOLE_LABEL.fullmatch, values))
    called = as_whole if are_whole else str
    values = set(map(called, values))
    tell_of_rewritten(column, {text: count for text, count in texts.items() if called(plain(text)) != text})
    labels = known or Labels(in_order(values), are_numbered=False)
    labels.kind = kind_of(labels.names, types)
    if known:
        require_plain_names(labels.names)
    numbers = {value: labels.spelled(value) for value in values}
    if nameless := sorted(value for value, number in numbers.items() if number is None):
        raise ValueError(
            f"column {column!r} has {nameless[0]!r}, which is none of the {len(labels)} names "
            f"{listed(labels.names)}: name all in task.label_names"
        )
    tell_of_order(column, class_names(rows, column), labels)
    present = {labels.names[number] for number in numbers.values() if number is not None}
    if len(present) < least:
        raise ValueError(
            f"all labels are {present.pop()!r}: there is nothing to learn; add rows with others, or name "
            "another column"
            if present
            else NO_LABELS
        )
    return labels


def kind_of(names: Sequence[str], types: Collection[type]) -> str:
    """Return the kind of labels of which rows have values of some types: names of these are texts.

    >>> kind_of(["1", "5"], {str}), kind_of(["1", "5"], {int}), kind_of(["no", "yes"], {bool})
    ('text', 'integer', 'text')
    """
    if types == {bool} and TRUTHS.keys() >= {*names}:
        return "truth"
    return "integer" if {int, float} >= {*types} and all(map(WHOLE.fullmatch, names)) else "text"


def tell_of_rewritten(column: str, texts: Mapping[str, int]) -> None:
    """Warn of texts that are no names as they stand, if there are any."""
    if texts:
        most = Counter(texts).most_common(MOST_SHOWN)
        shown = ", ".join(f"{spelling!r} in {count:,}" for spelling, count in most)
        warnings.warn(
            f"column {column!r} has labels with white space or unseen characters, left out, loose accents, "
            f"joined, or whole numbers in another form, as 1: {shown}",
            stacklevel=3,
        )


def tell_of_order(column: str, classes: Sequence[str], labels: Labels) -> None:
    """Warn if the recipe has the data set's names in another order."""
    if any(labels.spellings.get(name, number) != number for number, name in enumerate(classes)):
        warnings.warn(
            f"column {column!r} numbers its labels as {listed(classes)}, task.label_names as "
            f"{listed(labels.names)}: they are read by their names",
            stacklevel=3,
        )


def in_order(values: Iterable[str]) -> list[str]:
    """Sort labels: numbers as numbers, others by the alphabet."""
    names = sorted(values)
    return sorted(names, key=int) if all(map(WHOLE.fullmatch, names)) else names


def class_names(rows: Dataset, column: str) -> list[str]:
    """Return the names that the data set has for the numbers of a column, or of its lists, if it has any."""
    feature = rows.features[column]
    feature = feature.feature if isinstance(feature, List) else feature
    return list(map(plain, feature.names)) if isinstance(feature, ClassLabel) else []


def named_labels(rows: Dataset, column: str, names: Sequence[str] = ()) -> Labels | None:
    """Return the labels of a column if the recipe or else the data set names them."""
    classes = class_names(rows, column)
    own = Labels(classes) if classes else None
    if not names:
        return own
    labels = Labels(names)
    if labels.numbers.keys() >= {*classes}:
        return labels
    if any(labels.numbers.get(name, number) != number for number, name in enumerate(classes)):
        raise ValueError(
            f"task.label_names {listed(labels.names)} and the data set's names of column {column!r} "
            f"{listed(classes)} have labels in common, in other places: name all of them in "
            "task.label_names, or each in its place"
        )
    return Labels(names, renamed=classes[: len(labels)])


def require_labels_from_zero(rows: Dataset, column: str, names: Sequence[str]) -> None:
    """Refuse numbers of named labels, or lists of them, that count from 1."""
    known = labels_known(rows, column, names)
    if known is not None and known.spelled("0") == 0 and known.spelled(str(len(known))) is None:
        require_from_zero(rows[column][:], [len(known)] * len(rows), column)


def labels_known(rows: Dataset, column: str, names: Sequence[str]) -> Labels | None:
    """Return the labels if the recipe or else the data set names them, and as they should, or `None`."""
    with suppress(ValueError):
        return named_labels(rows, column, names)


def name_of(value: Any, labels: Labels | None, row: int, column: str) -> str:
    """Return the name of a label, however a file writes it."""
    return written(value, row, column) if labels is None else labels.names[labels.number(value, row, column)]


def spellings_of_numbers(names: Sequence[str]) -> dict[str, int]:
    """Return how a column may write labels instead of their names.

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
    """Write a label as its name, however a file writes it."""
    value = plain(value) if isinstance(value, str) else value
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


def as_whole(name: str) -> str:
    """Write a whole number without a point, and any other name as it is.

    >>> as_whole("1.0"), as_whole("-0"), as_whole("1.5")
    ('1', '0', '1.5')
    """
    whole = WHOLE_LABEL.fullmatch(name)
    return str(int(whole["number"])) if whole else name


def label_values(rows: Dataset, column: str) -> Sequence[Any]:
    """Return a column of labels, by name where the data set names them."""
    return by_name(values_of(rows, column), class_names(rows, column))


def label_lists(rows: Dataset, column: str) -> Sequence[list[Any]]:
    """Return a column of lists of labels, by name where the data set names them."""
    classes = class_names(rows, column)
    return [by_name(values, classes) for values in lists_of(rows, column, "labels")]


def by_name(values: Sequence[Any], classes: Sequence[str]) -> list[Any]:
    """Write the names of numbers for them, if there are any; -1 stands for no label."""
    if not classes:
        return list(values)
    named = dict(enumerate(classes))
    return [named.get(value, value) for value in values]


def listed_values(rows: Dataset, column: str) -> Iterator[tuple[int, Any]]:
    """List the values in the lists of a column, with their rows."""
    for row, values in enumerate(label_lists(rows, column)):
        yield from ((row, value) for value in values)
