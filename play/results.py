"""What an ability answers, as plain data: the page draws it, and the terminal prints it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A ranked answer."""

    text: str
    value: float
    """What the entries are ranked by: a probability, a cosine, ..."""
    is_share: bool = True
    """Whether the value is shown in percent; otherwise with three digits."""

    @property
    def shown(self) -> str:
        """Write the value for people to read."""
        return percent(self.value) if self.is_share else f"{self.value:.3f}"

    @property
    def share(self) -> float:
        """Return the length of the bar, between 0 and 1."""
        return min(max(self.value, 0.0), 1.0)


@dataclass(frozen=True)
class Ranking:
    """Answers, best first."""

    title: str
    entries: Sequence[Entry]


@dataclass(frozen=True)
class Piece:
    """A piece of a text."""

    text: str
    role: str = "given"
    """`given` by the user, `new` from the model, or the name of a label."""


@dataclass(frozen=True)
class Passage:
    """A text, part of which the model wrote or labelled."""

    title: str
    pieces: Sequence[Piece]

    @property
    def text(self) -> str:
        """Return the whole text."""
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True)
class Token:
    """A token as the model reads it."""

    text: str
    """The characters that it stands for, or its name where it stands for none."""
    token_id: int
    probability: float | None = None
    """Given the tokens before it; only decoders have one, and not for the first token."""


@dataclass(frozen=True)
class Tokens:
    """A text as a row of tokens."""

    title: str
    tokens: Sequence[Token]


@dataclass(frozen=True)
class Heatmap:
    """Weights from 0 to 1: how much each row draws from each column. A row sums to 1."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    weights: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Note:
    """A sentence about the answer."""

    text: str


Result = Ranking | Passage | Tokens | Heatmap | Note


def percent(share: float) -> str:
    """Write a share in percent, small ones with more digits.

    >>> percent(0.5), percent(0.0123), percent(0.00004)
    ('50.0 %', '1.2 %', '0.004 %')
    """
    digits = 1 if share >= 0.001 or share == 0 else 3
    return f"{100 * share:.{digits}f} %"
