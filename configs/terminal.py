r"""What is printed: text, and nothing that a terminal takes for a command.

A label, a configuration or an error may hold characters by which a terminal moves its cursor, hides text,
changes its title, or writes from right to left. They are printed as JSON writes them, `\u001b`, so that
lines of JSON keep their meaning.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""C0 but for tabs and line ends, DEL and C1, separators of lines and paragraphs, overrides of direction."""

MOVES = re.compile(r"(?:\x1b\[A|[\r\n])+")
"""How a progress bar (tqdm) moves among the lines of others, by writing nothing else."""


def escaped(text: str) -> str:
    r"""Write control characters so that they are seen.

    >>> print(escaped("good\x1b[2J\u202e"))
    good\u001b[2J\u202e
    """
    return CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class PlainText:
    """A stream that writes escaped text; if it `has_bars`, progress bars are drawn there."""

    def __init__(self, stream: Any, *, has_bars: bool = False):
        self.stream, self.has_bars = stream, has_bars

    def write(self, text: str) -> int:
        if self.has_bars and MOVES.fullmatch(text):
            return self.stream.write(text)
        begin = "\r" if self.has_bars and text.startswith("\r") else ""  # as a bar that is drawn anew
        return self.stream.write(begin + escaped(text.removeprefix(begin)))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def plain_streams() -> Iterator[None]:
    """Escape what is printed, as a context."""
    earlier = sys.stdout, sys.stderr
    if sys.stdout is not None:
        sys.stdout = PlainText(sys.stdout)
    if sys.stderr is not None:
        sys.stderr = PlainText(sys.stderr, has_bars=True)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = earlier
