"""What every ability is: it belongs to a model, says which fields it wants, and answers with plain data."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...data.files.problems import foreign_character
from ...reports.blocks import Result
from .loaded_model import LoadedModel

GAP = re.compile(r"_{2,}")
"""How a user writes a gap: two underscores or more."""

MOST_CHARACTERS = 100_000
"""Of a text, which is then tokenized within a second: how many tokens it has is known only afterwards."""

MOST_ANSWERS = 50
"""Answers in a ranking, at most."""


@dataclass(frozen=True)
class TextField:
    """A text to be written by the user."""

    name: str
    """Name of the field in the page."""
    label: str
    """What is shown above it."""
    lines: int = 2
    """Height of the field."""


@dataclass(frozen=True)
class NumberField:
    """A number to be chosen.

    Args:
        name: Keyword of `Ability.run`.
        label: What is shown above it.
        default: What stands there at first.
        least: The smallest value.
        most: The largest value.
        step: Between two values.
    """

    name: str
    label: str
    default: float
    least: float
    most: float
    step: float = 1

    def parse(self, value: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if not self.least <= number <= self.most:
            raise ValueError(
                f"{self.name} is {value!r}: choose a number from {self.least:g} to {self.most:g}"
            )
        return int(number) if self.step == 1 else number


Field = TextField | NumberField


class Ability(ABC):
    """Something that a model can do. Abstract: each kind says for which models, and computes its answers.

    Args:
        model: A model of which `applies` is true.
    """

    name: ClassVar[str]
    """In one lower-case word."""
    title: ClassVar[str]
    """For the page's tabs."""
    action: ClassVar[str]
    """For the button that runs it."""
    about: ClassVar[str]
    """What one sees, in one or two sentences."""

    def __init__(self, model: LoadedModel):
        self.model = model

    @staticmethod
    @abstractmethod
    def applies(model: LoadedModel) -> bool:
        """Return whether a model has the ability."""

    @property
    @abstractmethod
    def fields(self) -> Sequence[Field]:
        """List what the user fills in, texts first."""

    @property
    @abstractmethod
    def examples(self) -> Sequence[Sequence[str]]:
        """Return values of the text fields to begin with."""

    @abstractmethod
    def run(self, *texts: str, **numbers: float) -> list[Result]:
        """Answer texts, one for each text field, and numbers by the names of their fields.

        Raises:
            ValueError: There is nothing to answer, or too much.
        """

    def answer(self, texts: Sequence[str], numbers: Mapping[str, Any]) -> list[Result]:
        """Check the fields and answer; one answer of a model is computed at a time.

        Raises:
            ValueError: A field is empty, too long or has an impossible value, the model computes what is no
                number, or `run` raises one.
        """
        labels = [field for field in self.fields if isinstance(field, TextField)]
        for field, text in zip(labels, texts, strict=True):
            require_readable(field.label, text)
        chosen = {
            field.name: field.parse(numbers.get(field.name, field.default))
            for field in self.fields
            if isinstance(field, NumberField)
        }
        with self.model.alone():
            return self.run(*texts, **chosen)


def require_readable(label: str, text: str) -> None:
    """Refuse a text that is empty, longer than `MOST_CHARACTERS`, or has what is no character."""
    if not text.strip():
        raise ValueError(f"{label} is empty: write something there")
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"{label} has {len(text):,} characters: write at most {MOST_CHARACTERS:,}")
    if foreign := foreign_character(text):
        raise ValueError(f"{label} has {foreign!r}, which is no character: write it anew")


def lines_of(text: str) -> list[str]:
    """Split a field of several texts into its lines, empty ones left out."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def top_field(default: int = 5) -> NumberField:
    """Let the user choose how many answers are shown."""
    return NumberField("top", "Answers", default, 1, MOST_ANSWERS)
