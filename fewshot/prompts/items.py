"""Rows as items, and which of them stand in a prompt as demonstrations, in which order.

A draw is an order of all rows that depends on the seed alone, and K demonstrations are its first K: with more
of them a prompt changes by what is added. A row never demonstrates itself, nor does one that reads the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .boundary import Prompt

Draw = Literal["fixed", "per_example"]
"""Whether all rows have the same demonstrations, or each has a sample of its own."""


@dataclass(frozen=True)
class Item:
    """One row as a query, without demonstrations."""

    number: int
    """Number of the row, from 0."""
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
    """What its score is counted with; scores of groups are shown."""
    match: str = ""
    """Demonstrations are drawn from the items of the same one."""

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(answer for prompt in self.prompts for answer in prompt.answers)

    def is_correct(self, choice: int) -> bool:
        """Return whether an answer is the correct one, or reads just like it."""
        texts = [(prompt.context, answer) for prompt in self.prompts for answer in prompt.answers]
        return texts[choice] == texts[self.target]


def row_error(source: str, number: int, error: ValueError) -> ValueError:
    """Build the error of a row, with its file and its number from 1."""
    return ValueError(f"{source}, row {number + 1:,}: {error}")


class Demonstrations:
    """Draws demonstrations.

    Args:
        items: Rows to draw from.
        draw: `fixed`, the same ones for all rows, or `per_example`, a sample for each.
        balanced: Whether answers take turns, as long as there are rows.
        are_test: Whether they are the rows that are evaluated, with the same numbers.
        source: Where the rows stand that are evaluated, for messages.
    """

    def __init__(
        self,
        items: Sequence[Item],
        draw: Draw = "fixed",
        *,
        are_test: bool,
        balanced: bool = False,
        source: str = "data.test",
    ):
        self.draws_anew, self.balanced = draw == "per_example", balanced
        self.are_test, self.source = are_test, source
        self.items: dict[str, list[Item]] = {}
        for item in items:
            self.items.setdefault(item.match, []).append(item)
        self._fixed: dict[tuple[int, str], list[Item]] = {}

    def draw(self, item: Item, num_fewshot: int, seed: int, order: int = 0) -> list[Item]:
        """Return the demonstrations of an item, from the first to the one just before it."""
        if not num_fewshot:
            return []
        drawn: list[Item] = []
        for candidate in self.ranked(item, seed):
            is_itself = self.are_test and candidate.number == item.number
            if not is_itself and candidate.demonstration != item.demonstration:
                drawn.append(candidate)
            if len(drawn) == num_fewshot:
                break
        if len(drawn) < num_fewshot:
            error = ValueError(
                f"prompting.num_fewshot is {num_fewshot}, but there are {len(drawn)} different rows with "
                "the same task.match that can be demonstrations of this one: lower it"
            )
            raise row_error(self.source, item.number, error)
        if order:
            indices = np.random.default_rng([seed, order, num_fewshot]).permutation(len(drawn))
            drawn = [drawn[index] for index in indices]
        return drawn

    def ranked(self, item: Item, seed: int) -> list[Item]:
        """Order all rows for an item, or for all items where demonstrations are fixed."""
        items, key = self.items.get(item.match, []), (seed, item.match)
        if self.draws_anew:
            return self.shuffled(items, np.random.default_rng([seed, item.number, 1]))
        if key not in self._fixed:
            self._fixed[key] = self.shuffled(items, np.random.default_rng(seed))
        return self._fixed[key]

    def shuffled(self, items: Sequence[Item], rng: np.random.Generator) -> list[Item]:
        """Order rows at random; balanced, the answers take turns as long as there are rows."""
        order = [items[index] for index in rng.permutation(len(items))]
        if not self.balanced:
            return order
        by_label: dict[str, list[Item]] = {}
        for each in order:
            by_label.setdefault(each.label, []).append(each)
        turns = [(turn, rng.random(), each) for own in by_label.values() for turn, each in enumerate(own)]
        return [each for *_, each in sorted(turns, key=lambda entry: entry[:2])]
