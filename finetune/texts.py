"""Tasks about a text, or a pair of texts, as a whole: one label, several, or a number."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset

from ..training.packing import Ragged
from .encoding import TextEncoder
from .examples import LabelledExamples, numbers, vectors
from .label_metrics import label_scores, set_scores
from .labels import Labels, find_labels
from .number_metrics import number_scores
from .rows import texts_of, values_of
from .task import Facts, Prediction, Task
from .task_recipes import ClassificationRecipe, MultiLabelRecipe, RegressionRecipe
from .text_objectives import MultiLabelObjective, RegressionObjective, SingleLabelObjective

SHOWN_DIGITS = 6
"""Digits of probabilities and numbers in predictions."""


class TextTask(Task):
    """What is said of a whole text, or of a pair. Abstract: each kind adds its labels."""

    head = "ForSequenceClassification"
    recipe: ClassificationRecipe | MultiLabelRecipe | RegressionRecipe

    @staticmethod
    def inputs_in(recipe: ClassificationRecipe | MultiLabelRecipe | RegressionRecipe) -> tuple[str, ...]:
        """The text, or both texts."""
        return recipe.texts

    def examples(self, rows: Dataset, encoder: TextEncoder, *, labelled: bool = True) -> LabelledExamples:
        """Encode texts or pairs."""
        fields = encoder.encode(*(texts_of(rows, column) for column in self.recipe.texts))
        return LabelledExamples(fields | ({"labels": self.labels_of(rows)} if labelled else {}))

    @abstractmethod
    def labels_of(self, rows: Dataset) -> Ragged:
        """Give the labels of each row as numbers."""


class Classification(TextTask):
    """One label for a text, or for a pair."""

    metrics = {
        "accuracy": True,
        "f1": True,
        "f1_macro": True,
        "matthews_correlation": True,
        "calibration_error": False,
        "loss": False,
    }

    def __init__(self, recipe: ClassificationRecipe, facts: Facts):
        super().__init__(recipe, facts)
        self.labels = Labels(facts["labels"])
        self.shares = np.array(facts["shares"])

    @staticmethod
    def labels_in(recipe: ClassificationRecipe) -> tuple[str, ...]:
        """The label."""
        return (recipe.label,)

    @staticmethod
    def find(recipe: ClassificationRecipe, train: Dataset) -> Facts:
        """Find the labels, and the share of the rows that has each."""
        labels = find_labels(train, recipe.label, recipe.label_names)
        counts = np.bincount(labels.numbers_of(train, recipe.label), minlength=len(labels))
        return {"labels": labels.names, "shares": (counts / counts.sum()).tolist()}

    @property
    def config_fields(self) -> dict[str, Any]:
        """The labels' names."""
        return self.labels.config_fields | {"problem_type": "single_label_classification"}

    def labels_of(self, rows: Dataset) -> Ragged:
        """One number for each row."""
        return numbers(self.labels.numbers_of(rows, self.recipe.label))

    def objective(self) -> SingleLabelObjective:
        """Cross-entropy, perhaps with weights."""
        weights = None
        if self.recipe.class_weights == "balanced":
            weights = torch.tensor(1 / (len(self.labels) * self.shares.clip(min=1e-9)), dtype=torch.float32)
        return SingleLabelObjective(weights, self.recipe.label_smoothing)

    def predictions(self, answers: Sequence[np.ndarray], rows: Dataset) -> list[Prediction]:
        """Give the most probable label and the probabilities of all."""
        return [self.prediction(probabilities) for probabilities in softmax(np.stack(answers))]

    def prediction(self, probabilities: np.ndarray) -> Prediction:
        """Say the most probable label (L,)."""
        shown = dict(zip(self.labels.names, np.round(probabilities, SHOWN_DIGITS).tolist(), strict=True))
        best = self.labels.names[int(probabilities.argmax())]
        return {"label": best, "score": shown[best], "scores": shown}

    def references(self, rows: Dataset) -> np.ndarray:
        """The numbers of the labels."""
        return self.labels.numbers_of(rows, self.recipe.label)

    def score(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> dict[str, float]:
        """Score the labels."""
        probabilities = np.array([list(each["scores"].values()) for each in predictions])
        return label_scores(probabilities, np.asarray(references))

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        """Predict the most frequent label, with the shares of all."""
        return [self.prediction(self.shares)] * len(rows)


class MultiLabel(TextTask):
    """Any number of labels for a text, or for a pair."""

    metrics = {"f1_micro": True, "f1_macro": True, "accuracy": True, "loss": False}

    def __init__(self, recipe: MultiLabelRecipe, facts: Facts):
        super().__init__(recipe, facts)
        self.labels = Labels(facts["labels"])

    @staticmethod
    def labels_in(recipe: MultiLabelRecipe) -> tuple[str, ...]:
        """The lists of labels."""
        return (recipe.labels,)

    @staticmethod
    def find(recipe: MultiLabelRecipe, train: Dataset) -> Facts:
        """Find the labels."""
        return {"labels": find_labels(train, recipe.labels, recipe.label_names).names}

    @property
    def config_fields(self) -> dict[str, Any]:
        """The labels' names."""
        return self.labels.config_fields | {"problem_type": "multi_label_classification"}

    def references(self, rows: Dataset) -> np.ndarray:
        """Say of each row and label whether it holds, (E, L)."""
        column = self.recipe.labels
        table = np.zeros((len(rows), len(self.labels)), dtype=np.int64)
        for row, values in enumerate(values_of(rows, column)):
            for value in values:
                table[row, self.labels.number(value, row, column)] = 1
        return table

    def labels_of(self, rows: Dataset) -> Ragged:
        """A zero or one for each label."""
        return vectors(self.references(rows))

    def objective(self) -> MultiLabelObjective:
        """Binary cross-entropy."""
        return MultiLabelObjective()

    def predictions(self, answers: Sequence[np.ndarray], rows: Dataset) -> list[Prediction]:
        """Give the labels that are more probable than not, and the probabilities of all."""
        return [self.prediction(1 / (1 + np.exp(-answer.astype(np.float64)))) for answer in answers]

    def prediction(self, probabilities: np.ndarray) -> Prediction:
        """Say the probable labels (L,)."""
        shown = dict(zip(self.labels.names, np.round(probabilities, SHOWN_DIGITS).tolist(), strict=True))
        return {"labels": [name for name, score in shown.items() if score > 0.5], "scores": shown}

    def score(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> dict[str, float]:
        """Score the sets of labels."""
        found = np.array([list(each["scores"].values()) for each in predictions]) > 0.5
        return set_scores(found.astype(np.int64), np.asarray(references))

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        """Predict for each label whether most rows have it."""
        return [self.prediction(self.references(train).mean(axis=0))] * len(rows)


class Regression(TextTask):
    """A number for a text, or for a pair."""

    metrics = {
        "pearson": True,
        "spearman": True,
        "mean_squared_error": False,
        "loss": False,
    }

    @staticmethod
    def labels_in(recipe: RegressionRecipe) -> tuple[str, ...]:
        """The number."""
        return (recipe.label,)

    @staticmethod
    def find(recipe: RegressionRecipe, train: Dataset) -> Facts:
        """Make sure that the numbers differ."""
        if np.ptp(numbers_in(train, recipe.label)) == 0:
            raise ValueError(
                f"all rows have the same number in column {recipe.label!r}: there is nothing to learn"
            )
        return {}

    @property
    def config_fields(self) -> dict[str, Any]:
        """One output."""
        return {
            "id2label": {0: self.recipe.label},
            "label2id": {self.recipe.label: 0},
            "problem_type": "regression",
        }

    def references(self, rows: Dataset) -> np.ndarray:
        """Give the numbers, (E,)."""
        return numbers_in(rows, self.recipe.label)

    def labels_of(self, rows: Dataset) -> Ragged:
        """One number for each row."""
        return numbers(self.references(rows))

    def objective(self) -> RegressionObjective:
        """Squared error."""
        return RegressionObjective()

    def predictions(self, answers: Sequence[np.ndarray], rows: Dataset) -> list[Prediction]:
        """Give the number."""
        return [{self.recipe.label: round(float(answer[0]), SHOWN_DIGITS)} for answer in answers]

    def score(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> dict[str, float]:
        """Score the numbers."""
        found = np.array([each[self.recipe.label] for each in predictions])
        return number_scores(found, np.asarray(references))

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        """Predict the mean."""
        return [{self.recipe.label: round(float(self.references(train).mean()), SHOWN_DIGITS)}] * len(rows)


def numbers_in(rows: Dataset, column: str) -> np.ndarray:
    """Give a column of numbers, (E,).

    Raises:
        ValueError: A value is none.
    """
    values = values_of(rows, column)
    for row, value in enumerate(values):
        if not isinstance(value, (int, float)) or not np.isfinite(value):
            raise ValueError(
                f"row {row + 1} has {value!r} in column {column!r}, which is no number: correct it"
            )
    return np.array(values, dtype=np.float32)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Turn scores (E, L) into probabilities."""
    powers = np.exp(scores.astype(np.float64) - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
