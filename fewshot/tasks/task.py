"""What every kind of task is: rows become items, items queries, a model's scores or texts records.

rows --item--> items --queries--> queries --answerer--> records --scores--> {"accuracy": 0.93, ...}

A record is plain data, one line of the log: the prompt, its tokens, and the log-likelihoods or the text that
the model gives.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ...data.files.template_program import Row
from ..prompts.items import Item
from ..prompts.prompted_model import PromptedModel
from ..prompts.prompting import Prompter, Query
from ..prompts.templates import templates_of
from .recipes import Common

Record = dict[str, Any]

Answerer = Callable[[list[Query]], Iterator[Record]]
"""Yields the record of each query."""

RowScore = Callable[[np.ndarray], float]
"""Computes a metric of some rows, by their indices (E,)."""


class Task(ABC):
    """A kind of task. Abstract: each adds how rows become items, what it reads off a model, its metrics.

    Args:
        recipe: Its part of the recipe.
    """

    metric: str
    """The metric that counts."""
    title: ClassVar[str]
    """How the title of a report begins."""
    scored: ClassVar[str]
    """How answers are found, in the words of a report."""
    is_higher_better: ClassVar[bool] = True
    """Whether a high value of the metric is a good one."""
    takes_demonstrations: ClassVar[bool] = True
    """Whether a prompt may hold other rows."""
    reads_windows: ClassVar[bool] = False
    """Whether a text that is too long is read in windows, rather than cut."""

    def __init__(self, recipe: Common):
        self.recipe: Any = recipe
        self.templates = templates_of(recipe.TEMPLATES, vars(recipe))
        self.group, self.match = map(self.templates.get, ("group", "match"))

    def item(self, number: int, row: Row) -> Item:
        """Turn a row into an item."""
        item = self.fill_in(number, row)
        group, match = ("" if each is None else str(each(row)) for each in (self.group, self.match))
        return replace(item, group=group, match=match)

    @abstractmethod
    def fill_in(self, number: int, row: Row) -> Item:
        """Fill the templates in with a row, whatever its group."""

    def require_calibrated(self, row: Row) -> None:
        """Raise a `ValueError` if a prompt without content that calibration needs cannot be written."""
        return

    def tell_of_targets(self, source: str, items: Sequence[Item], row: Row) -> None:
        """Warn if the right answers of items seem to be counted from 1; `row` is that of the first."""
        return

    def queries(
        self, prompter: Prompter, items: Sequence[Item], demonstrations: Sequence[list[Item]]
    ) -> list[Query]:
        """Put items behind their demonstrations."""
        return prompter.queries(items, demonstrations)

    @abstractmethod
    def answerer(self, model: PromptedModel) -> Answerer:
        """Return what yields the records of queries to a model."""

    @abstractmethod
    def scores(self, records: Sequence[Record]) -> dict[str, float]:
        """Return all scores of some records."""

    def metric_of_rows(self, records: Sequence[Record]) -> RowScore:
        """Return what computes the metric of some of the records."""
        return mean_of([self.value(record) for record in records])

    @abstractmethod
    def value(self, record: Record) -> float:
        """Return what a record adds to the metric, where that is a mean over records."""

    def details(self, records: Sequence[Record]) -> dict[str, Any]:
        """Return what results say of the records of one number of demonstrations beside scores."""
        return {}

    def baselines(self, items: Sequence[Item]) -> dict[str, list[Any]]:
        """Return what needs no model: for each item, what the most frequent or a random answer is worth."""
        return {}

    def score_of_baseline(self, worth: Sequence[Any]) -> RowScore:
        """Return what computes the metric of some rows from what a baseline is worth for each of all."""
        return mean_of(worth)


def majority(answers: Sequence[Any]) -> list[bool]:
    usual = Counter(answers).most_common(1)[0][0]
    return [answer == usual for answer in answers]


def mean_of(values: Sequence[float]) -> RowScore:
    array = np.asarray(values, dtype=np.float64)
    return lambda rows: float(array[rows].mean())
