r"""The items of a JSON array that is as long as it likes, one after another, each as it is written.

    [{"text": "a"},            an item ends at a comma between the outermost brackets, or at the last bracket;
     {"text": "b, \"c\""}]     brackets and commas within texts are text

Only the item that is being read is held, and no more of it than a record may have. What an item says is not
looked at, so that one that is no JSON costs no other.
"""

import re
from collections.abc import Iterator
from typing import TextIO

from .bad_records import DamageError, Limit

AT_ONCE = 2**16
"""Characters that are read at once."""

STRUCTURE, TEXT = re.compile(r'["\[\]{},]'), re.compile(r'["\\]')
"""What matters outside of texts, and within one."""


def items_of(text: TextIO, limit: Limit, line: int = 1) -> Iterator[tuple[int, str]]:
    """Cut an array into its items, each with the line on which it begins.

    Args:
        text: What follows the first bracket.
        limit: One character more is given of an item that is too long.
        line: On which the first bracket stands.

    Raises:
        DamageError: The array does not end, or something follows it.
    """
    item, depth, is_text = _Item(limit, line), 1, False
    while portion := _portion(text):
        start = place = 0
        while depth and (match := (TEXT if is_text else STRUCTURE).search(portion, place)):
            sign, place = match[0], match.end()
            if sign == "\\":
                place += 1
            elif sign == '"':
                is_text = not is_text
            elif sign != ",":
                depth += 1 if sign in "[{" else -1
            if not depth or (sign == "," and depth == 1 and not is_text):
                item.add(portion[start : place - 1])
                if depth or item.text.strip():
                    yield item.line, item.text
                item, start = _Item(limit, item.last_line), place
        item.add(portion[start:])
        if not depth and item.text.strip():
            raise DamageError(item.line) from ValueError("something follows the end of the list")
    if depth:
        raise DamageError(item.line) from ValueError("the list does not end")


def _portion(text: TextIO) -> str:
    """Read a portion that does not end amid an escaped character."""
    portion = text.read(AT_ONCE)
    while portion.endswith("\\") and (more := text.read(1)):
        portion += more
    return portion


class _Item:
    """An item as far as it is read.

    Args:
        limit: How much of it is kept.
        line: On which what comes before it ends.
    """

    def __init__(self, limit: Limit, line: int):
        self.room = limit.characters + 1
        self.first_line = self.last_line = line
        self.pieces: list[str] = []

    def add(self, piece: str) -> None:
        """Append what was read."""
        self.last_line += piece.count("\n")
        self.pieces.append(piece[: self.room])
        self.room -= len(self.pieces[-1])

    @property
    def text(self) -> str:
        """What is kept of it."""
        return "".join(self.pieces)

    @property
    def line(self) -> int:
        """The line on which it begins."""
        text = self.text
        return self.first_line + text.count("\n", 0, len(text) - len(text.lstrip()))
