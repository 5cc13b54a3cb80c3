"""What a row gives as answers, and which of them is correct."""

from collections.abc import Sequence
from typing import Any

from ..text.row_files import plain
from .template_process import is_missing


def texts_in(name: str, values: Any, least: int = 2) -> list[str]:
    """Return a list of texts that all say something.

    Raises:
        ValueError: It is no list, has too few, or one is empty.
    """
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) < least:
        raise ValueError(f"{name} gives {values!r:.60}, not a list of {least} or more: correct the row")
    texts = [value if isinstance(value, str) else str(value) for value in values]
    for number, text in enumerate(texts):
        if is_missing(values[number]) or not text.strip():
            raise ValueError(
                f"{name} gives the empty answer {values[number]!r} (number {number}): fill it in, or "
                f"exclude the row with data.where"
            )
    return texts


def place_of(
    target: Any, choices: Sequence[str], labels: Sequence[str | int], *, are_fixed: bool = True
) -> int:
    """Find the number of the correct choice: by its label, its text, or its number.

    A whole number counts the choices of a row. Fixed choices may be called by it, if that is not in doubt.
    White space around a label is no part of it.

    >>> place_of("Negative ", ["bad", "good"], ["Negative", "Positive"]), place_of(1, ["a", "b"], [])
    (0, 1)

    Raises:
        ValueError: It is none of the choices, or may be two of them.
    """
    if labels and len(labels) != len(choices):
        raise ValueError(
            f"task.labels names {len(labels)} labels for {len(choices)} choices: give one label for each "
            f"choice"
        )
    if is_missing(target):
        raise ValueError(
            f"task.target gives {target}: give the correct answer, or exclude the row with data.where"
        )
    names, name = [str(label) for label in labels] or list(choices), str(target)
    if name not in names:
        names, name = list(map(plain, names)), plain(name)
    by_name = names.index(name) if name in names else None
    by_number = int(target) if not labels and name.isdecimal() and int(target) < len(choices) else None
    if isinstance(target, int) and not labels:
        if are_fixed and len({by_name, by_number} - {None}) > 1:
            raise ValueError(
                f"task.target gives {target}, which is the index of one choice and the text of another: set "
                f"task.labels to the names of the choices in task.target, in the same order"
            )
        if not are_fixed and by_number is None and by_name is not None:
            raise ValueError(
                f"task.target gives {target}, but an integer is the index of one of the {len(choices)} "
                f"choices, from 0: for the text of a choice, write task.target: (...) | string"
            )
        by_name = by_name if are_fixed else None
    for place in (by_name, by_number):
        if place is not None:
            return place
    raise ValueError(f"task.target gives {target!r}, which is none of {', '.join(names)[:200]}: correct it")
