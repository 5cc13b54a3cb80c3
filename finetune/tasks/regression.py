"""A number for a text, or for a pair of texts, such as how alike they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...data.files.bad_rows import RowError
from ...data.files.columns import number_of, values_of
from ...data.steps.packing import Ragged
from ...training.metrics.numbers import SCORES, number_scores
from ..encoding import numbers
from .objectives import RegressionObjective
from .recipes import ColumnFields, Columns, Modules, RowsRecipe
from .task import Facts, Prediction, Predictions, RowScore
from .texts import TextTask

LARGEST = 1e18
"""Numbers up to which squared errors, and sums of thousands of them, are finite in float32."""


@dataclass(frozen=True)
class RegressionRecipe(RowsRecipe):
    """A number for a text, or for a pair of texts."""

    COLUMNS = ColumnFields(("texts",), ("label",))
    TERMS = {"regression": ("numbers", "text-classification")}
    METRICS = {
        "pearson": "Pearson correlation",
        "spearman": "Spearman correlation",
        "mean_squared_error": "mean squared error",
    }

    kind: Literal["regression"]
    texts: Columns = ("text",)
    """Columns of the text, or of the pair."""
    label: str = "score"
    """Column of the number."""
    metric_for_best_model: Literal["pearson", "spearman", "mean_squared_error"] = "pearson"
    """Metric that selects the best checkpoint."""
    metrics: Modules = ()
    """Modules of the `evaluate` library that are computed and reported as well."""

    def build(self, facts: Facts | None = None) -> "Regression":
        return Regression(self, facts)


class Regression(TextTask):
    """A number for a text, or for a pair."""

    title = "Regression"
    recipe: RegressionRecipe
    metrics = {
        "pearson": True,
        "spearman": True,
        "mean_squared_error": False,
        "loss": False,
    }
    baseline = "mean"
    grades_errors = True

    def require_labels(self, rows: Dataset) -> None:
        numbers_in(rows, self.recipe.label)

    def find(self, train: Dataset) -> Facts:
        if np.ptp(self.references(train)) == 0:
            raise ValueError(
                f"all rows have the same number in column {self.recipe.label!r}: there is nothing to learn; "
                "add rows with others, or name another column"
            )
        return {}

    @property
    def config_fields(self) -> dict[str, Any]:
        return {
            "id2label": {0: self.recipe.label},
            "label2id": {self.recipe.label: 0},
            "problem_type": "regression",
        }

    def prepare_model(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        # sentence-transformers takes the number for a logit otherwise
        model.config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}

    def references(self, rows: Dataset) -> np.ndarray:
        return numbers_in(rows, self.recipe.label)

    def labels_of(self, rows: Dataset) -> Ragged:
        return numbers(self.references(rows))

    def objective(self) -> RegressionObjective:
        return RegressionObjective()

    def predictions(self, answers: Sequence[np.ndarray], rows: Dataset) -> list[Prediction]:
        return [{self.recipe.label: exact(answer[0])} for answer in answers]

    def score(self, predictions: Predictions, references: Sequence[Any]) -> dict[str, float]:
        return number_scores(self.found(predictions), np.asarray(references))

    def against_guess(self) -> "Regression":
        # squared errors: the mean has no correlation, so any would be better, however far off
        return Regression(replace(self.recipe, metric_for_best_model="mean_squared_error"), self.facts)

    def score_of_rows(self, predictions: Predictions, references: Sequence[Any]) -> RowScore:
        score = SCORES[self.metric_for_best_model]
        found, right = self.found(predictions), np.asarray(references)
        return lambda rows: score(found[rows], right[rows])

    def plain(self, predictions: Predictions, references: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        return self.found(predictions).tolist(), np.asarray(references).tolist()

    def error(self, predictions: Predictions, references: Sequence[Any]) -> np.ndarray:
        return np.abs(self.found(predictions) - np.asarray(references))

    def format_prediction(self, prediction: Prediction) -> str:
        return f"{prediction[self.recipe.label]:.3g}"

    def format_reference(self, reference: Any) -> str:
        return f"{float(reference):.3g}"

    def found(self, predictions: Predictions) -> np.ndarray:
        return np.array([each[self.recipe.label] for each in predictions])

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        return [{self.recipe.label: exact(self.references(train).mean())}] * len(rows)


def exact(number: Any) -> float:
    """Write a float32 in as few digits as tell it from others, whatever its size.

    >>> exact(np.float32(0.1)), exact(np.float32(2.5e-9))
    (0.1, 2.5e-09)
    """
    return float(str(np.float32(number)))


def numbers_in(rows: Dataset, column: str) -> np.ndarray:
    """Return a column of numbers, (E,)."""
    values = values_of(rows, column)
    found = [number_of(value) for value in values]
    for row, (value, number) in enumerate(zip(values, found, strict=True)):
        if number is None:
            raise RowError(
                row,
                f"has {value!r} in column {column!r}, which is no number: correct it",
                f"has no number in column {column!r}",
            )
        if abs(number) > LARGEST:
            raise RowError(
                row,
                f"has {number:g} in column {column!r}, whose square no float32 holds: scale the numbers",
                f"has too large a number in column {column!r}",
            )
    return np.array(found, dtype=np.float32)
