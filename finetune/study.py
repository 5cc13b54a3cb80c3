"""What all runs of a recipe have in common: the task, the rows, the model before it has learned anything."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from .grid import combinations
from .learning import learner_of
from .model import Beginning, load_beginning
from .recipe import FineTuningRecipe
from .splits import MEASURED, Split, encode_splits, encoder_of, find_task, read_splits
from .task import Task

Results = Mapping[int, dict[str, Any]]
"""Seed -> scores of its run."""


@dataclass(frozen=True)
class Study:
    """What all runs of a recipe have in common."""

    task: Task
    splits: Mapping[str, Split]
    beginning: Beginning
    """Of the first seed."""

    @property
    def measured(self) -> list[str]:
        """The splits that nothing is learned from; the last one is what counts."""
        return [name for name in MEASURED if name in self.splits]


def prepare(recipe: FineTuningRecipe) -> Study:
    """Read rows and model, and make sure that all fits.

    Raises:
        ValueError: It does not.
        FileNotFoundError: A file or model is not there.
    """
    combinations(recipe)
    rows = read_splits(recipe)
    task = find_task(recipe, rows)
    beginning = load_beginning(recipe.model, task, recipe.training.seeds[0])
    learner_of(deepcopy(beginning.model), recipe)
    encoder = encoder_of(beginning.model, beginning.tokenizer, recipe.data.max_length)
    return Study(task, encode_splits(recipe.data, rows, task, encoder), beginning)
