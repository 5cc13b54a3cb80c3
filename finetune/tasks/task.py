"""What every task is: rows become examples, a model's answers become predictions, predictions get scores.

rows --examples--> Examples --objective--> the engine trains
Examples --answers----> predictions --score--> {"accuracy": 0.93, ...}
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from datasets import Dataset
from pydantic import TypeAdapter
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...configs.model_paths import TASK, read_task
from ...configs.recipe import recipe_data
from ...data.files.atomic_writes import replace_text
from ...data.files.columns import texts_of
from ...data.files.problems import Row
from ...modeling import TercetConfig
from ...modeling.saved.checkpoint import Checkpoint
from ..encoding import LabelledExamples, TextEncoder
from .objectives import TaskObjective
from .recipes import RowsRecipe, TaskRecipe

if TYPE_CHECKING:
    from ...training.metrics.labels import LabelRow
    from .library_metrics import Modules

SHOWN_CHARACTERS = 600
"""Of a text in a report, at most."""

MAX_LENGTH = "max_length"
"""Among the facts that are kept: tokens of a row that the model was trained and scored on, at most."""

ROWS_TO_TRY = 16
"""Rows that the modules of `task.metrics` score before a model learns, to see that they can."""

Prediction = dict[str, Any]
"""What is predicted for one row, as it is written into a file."""

Predictions = Sequence[Prediction]

RowScore = Callable[[np.ndarray], float]
"""Computes the metric of some rows, by their indices (E,)."""

Shown = Sequence[tuple[str, Sequence[tuple[str, str]]]]
"""Lines of a report: the label of each, and its pieces of text, which are `right`, `wrong` or `plain`."""

Facts = dict[str, Any]
"""Plain data, kept with the model: a task is the same again wherever its recipe and its facts are."""


class Task(ABC):
    """A task. Abstract: each kind adds what is read, learned and scored, here in the order of the calls.

        find -> examples, objective -> predictions, references -> score, error
        beside these: guess, the baseline; format_prediction, format_reference, for the report

    Args:
        recipe: The `task` part of a recipe.
        facts: What `find` found in the training rows; nothing before it has.
    """

    title: ClassVar[str]
    """How the title of a report begins."""
    head: ClassVar[str]
    """How the names of the models end that can do it."""
    metrics: ClassVar[Mapping[str, bool]]
    """Every score, and whether more of it is better."""
    baseline: ClassVar[str] = "majority class"
    """What `guess` predicts, as reports call it."""
    drawn_unit: ClassVar[str] = "rows"
    """What the bootstrap draws: see `drawn_rows`."""
    learns_texts: ClassVar[bool] = False
    """Whether labels are texts, too, which the tokenizer reads."""
    grades_errors: ClassVar[bool] = False
    """Whether a prediction with a small error is still a good one, not just nearly chosen."""

    def __init__(self, recipe: Any, facts: Facts | None = None):
        self.recipe = recipe
        self.facts: Facts = facts or {}
        self.modules: Modules = {}
        """What is computed beside the task's own metrics; a run loads it."""

    @abstractmethod
    def find(self, train: Dataset) -> Facts:
        """Find out what the training rows alone tell: which labels there are, and how often."""

    @property
    def score_names(self) -> dict[str, str]:
        """What reports call scores of which the recipe's `METRICS` do not say enough."""
        return {}

    def require_inputs(self, rows: Dataset) -> None:
        """Raise a `RowError` unless a model can read each row, whatever the others hold."""
        for column in self.recipe.input_columns:
            texts_of(rows, column)

    def require_labels(self, rows: Dataset) -> None:
        """Raise a `RowError` unless each row has what a model learns, whatever the others hold."""
        for column in self.recipe.label_columns:
            texts_of(rows, column)

    def require_usable(self, rows: Dataset) -> None:
        """Raise a `RowError` unless each row can be read and learned from, whatever the others hold."""
        self.require_inputs(rows)
        self.require_labels(rows)

    def require_readable(self, rows: Dataset, encoder: TextEncoder) -> None:
        """Raise a `RowError` if the tokenizer reads nothing of a row, or of a text that is to be learned."""
        self.examples(rows, encoder, labelled=self.learns_texts)

    def require_consistent(self, rows: Dataset) -> None:
        """Raise a `RowError` for what rows show only together, as numbers from 1; some may be bad ones."""
        return

    def settled(self, model: Checkpoint) -> tuple[Any, int | None]:
        """Fill in what the recipe leaves to a model on disk; most tasks leave nothing.

        Returns:
            The task's part of the recipe, and how many tokens of a row the model reads, if its folder says.
        """
        return self.recipe, None

    def strata(self, rows: Dataset) -> list[str] | None:
        """Return each row's label if it has one, so that rows are held out in proportion."""
        return None

    def labels_in(self, rows: Dataset) -> Iterator[tuple[int, str]]:
        """Yield rows with the names of their labels, where there are labels."""
        return iter(())

    def repair(self, rows: Dataset, row: int) -> dict[str, Any] | None:
        """Repair the columns of a row that cannot be used, or give `None` where that would be a guess."""
        return None

    def prepare_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Set what a tokenizer needs for the task beside its tokens: a frame, a chat template, or nothing."""
        return

    def prepare_model(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Set what a model needs for the task beside its weights; most tasks need nothing."""
        return

    @property
    def metric_for_best_model(self) -> str:
        """The metric by which checkpoints are compared."""
        return self.recipe.metric_for_best_model

    @property
    def config_fields(self) -> dict[str, Any]:
        """What the model's configuration has to say of the task: labels and their names, most often."""
        return {}

    @abstractmethod
    def examples(self, rows: Dataset, encoder: TextEncoder, *, labelled: bool = True) -> LabelledExamples:
        """Encode rows, with their labels or without."""

    @abstractmethod
    def objective(self) -> TaskObjective[Any]:
        """Return what is learned from the examples."""

    def objective_for(self, model: nn.Module) -> TaskObjective[Any]:
        """Return what a model learns from the examples; one that scores whole sentences has its own way."""
        return self.objective()

    @abstractmethod
    def predictions(self, answers: Sequence[np.ndarray], rows: Dataset) -> list[Prediction]:
        """Turn the answers to a data set's examples into what is predicted for its rows."""

    @abstractmethod
    def references(self, rows: Dataset) -> Any:
        """Return what each row's prediction is compared with, an entry for each."""

    @abstractmethod
    def score(self, predictions: Predictions, references: Sequence[Any]) -> dict[str, float]:
        """Score predictions."""

    def library_scores(self, predictions: Predictions, references: Sequence[Any]) -> dict[str, float]:
        """Score predictions by the modules of the `evaluate` library that the recipe names, if any."""
        if not self.modules:
            return {}
        from .library_metrics import library_scores

        return library_scores(self.modules, *self.plain(predictions, references))

    def plain(self, predictions: Predictions, references: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return predictions and references as `evaluate` has them: label numbers, numbers or texts."""
        raise NotImplementedError(
            f"{type(self).__name__} has no plain predictions, and its recipe no metrics"
        )

    def ceiling(self, references: Sequence[Any]) -> dict[str, float]:
        """Score the references as the tokenizer writes them, where it cannot write them as they are."""
        return {}

    @abstractmethod
    def error(self, predictions: Predictions, references: Sequence[Any]) -> np.ndarray:
        """Return the error of each prediction, (E,): 0 if it is correct."""

    @abstractmethod
    def format_prediction(self, prediction: Prediction) -> str:
        """Write a prediction for people to read."""

    @abstractmethod
    def format_reference(self, reference: Any) -> str:
        """Write what would have been correct."""

    def sureness(self, predictions: Predictions) -> np.ndarray | None:
        """Return how sure the model was of each prediction, (E,), where predictions say so."""
        return None

    def show(self, row: Row, prediction: Prediction, reference: Any, *, is_right: bool = False) -> Shown:
        """Lay out a row and what was predicted, for people to read."""
        role = "right" if is_right else "wrong"
        return [
            *((column, [(shortened(row[column]), "plain")]) for column in self.recipe.input_columns),
            ("reference", [(shortened(self.format_reference(reference)), "right")]),
            ("prediction", [(shortened(self.format_prediction(prediction)), role)]),
        ]

    def breakdown(self, predictions: Predictions, references: Sequence[Any]) -> "list[LabelRow]":
        """Score every label on its own, where there are labels."""
        return []

    def confusions(
        self, predictions: Predictions, references: Sequence[Any]
    ) -> tuple[Sequence[str], np.ndarray] | None:
        """Count which labels (rows) were taken for which (columns), where each row has one."""
        return None

    @abstractmethod
    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        """Predict the baseline that needs no text: the majority class, the mean, ..."""

    def count_words(self, train: Dataset, rows: Dataset) -> list[Prediction] | None:
        """Predict the baseline that counts words (`texts.py`), where there are labels to learn."""
        return None

    def against_guess(self) -> "Task":
        """Return the task by whose metric a model is compared with `guess`; most have one for all."""
        return self

    def drawn_rows(self, references: Sequence[Any]) -> Sequence[int]:
        """List the rows that are drawn from: all, unless some are no further evidence beside others."""
        return range(len(references))

    def drawn(self, predictions: Predictions, references: Sequence[Any]) -> tuple[Predictions, Sequence[Any]]:
        """Return what is predicted of the rows that are drawn from, and what is right."""
        rows = self.drawn_rows(references)
        if len(rows) == len(references):
            return predictions, references
        return [predictions[row] for row in rows], [references[row] for row in rows]

    def score_of_rows(self, predictions: Predictions, references: Sequence[Any]) -> RowScore:
        """Return what computes the metric of some rows."""

        def scored(indices: np.ndarray) -> float:
            drawn = indices.tolist()
            chosen = [predictions[row] for row in drawn], [references[row] for row in drawn]
            return self.score(*chosen)[self.metric_for_best_model]

        return scored

    def companions(self, config: TercetConfig, max_length: int) -> dict[str, Any]:
        """Return JSON files that other programs need beside the finished model, by their names."""
        return {}

    def minimized_metric(self, scores: Mapping[str, float | None]) -> float:
        """Return the metric for the best model, negated if more of it is better; infinite if undefined."""
        score = scores[self.metric_for_best_model]
        if score is None or math.isnan(score):
            return math.inf
        return -score if self.metrics[self.metric_for_best_model] else score


def shortened(value: Any) -> str:
    """Write a value so that it fits into a report."""
    text = " ".join(str(value).split())
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} …"


def build_task(recipe: RowsRecipe, train: Dataset, *, trust_remote_code: bool = False) -> Task:
    """Find out what the labels of a task are, and load what else shall score it."""
    task = recipe.build(recipe.build().find(train))
    if names := getattr(recipe, "metrics", ()):
        from .library_metrics import load_metrics

        task.modules = load_metrics(names, trust_remote_code=trust_remote_code)
        few = train.select(range(min(len(train), ROWS_TO_TRY)))
        task.library_scores(task.guess(train, few), task.references(few))
    return task


def keep_task(task: Task, folder: Path, max_length: int) -> None:
    """Write into a model's folder what it can do, for `load_task`, and how many tokens of a row it reads."""
    told = {"task": recipe_data(task.recipe), "facts": task.facts | {MAX_LENGTH: max_length}}
    replace_text(folder / TASK, json.dumps(told, indent=2, ensure_ascii=False) + "\n")


def load_task(folder: Path) -> Task:
    """Read what a model can do."""
    told = read_task(folder)
    recipe = TypeAdapter(TaskRecipe).validate_python(told["task"])
    return recipe.build(told["facts"])
