"""A row as an item: its query, what is correct, and how it looks as a demonstration."""

from dataclasses import dataclass

from .boundary import Prompt


@dataclass(frozen=True)
class Item:
    """One row as a query, without demonstrations."""

    number: int
    """Of the row, from 0."""
    prompts: tuple[Prompt, ...]
    """One with all answers, or one for each if their contexts differ."""
    target: int = 0
    """The number of the correct answer."""
    references: tuple[str, ...] = ()
    """What is correct, where the model generates."""
    demonstration: str = ""
    """The row with its correct answer, as it stands among the demonstrations."""
    label: str = ""
    """Its correct answer, for balanced draws."""
    group: str = ""
    match: str = ""
    """Demonstrations are drawn from the items of the same one."""

    @property
    def answers(self) -> tuple[str, ...]:
        """All answers, in their order."""
        return tuple(answer for prompt in self.prompts for answer in prompt.answers)

    def is_correct(self, choice: int) -> bool:
        """Tell whether an answer is the correct one, or reads just like it."""
        texts = [(prompt.context, answer) for prompt in self.prompts for answer in prompt.answers]
        return texts[choice] == texts[self.target]


def row_error(place: str, number: int, error: ValueError) -> ValueError:
    """Say of what is wrong with a row where it stands: its file, and its number from 1."""
    return ValueError(f"{place}, row {number + 1:,}: {error}")
