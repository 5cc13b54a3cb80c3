"""Tasks about a text, or a pair of texts, as a whole: one label, or several."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from scipy.special import softmax
from transformers import PreTrainedTokenizerBase

from ..metrics.labels import (
    DECISION_SCORES,
    LabelRow,
    count_confusions,
    label_scores,
    label_table,
    set_scores,
)
from ..objectives.task_objectives import MultiLabelObjective, SingleLabelObjective
from ..text.rows import lists_of, texts_of, values_of
from ..training.packing import Ragged
from .bag_of_words import BagOfWords
from .encoding import TextEncoder
from .examples import LabelledExamples, numbers, vectors
from .frames import separate_pairs
from .labels import Labels, find_labels, labels_known, name_of
from .multi_hot import hot_names, require_set, set_of, tell_of_hot
from .task import Facts, Prediction, Task
from .task_recipes import ClassificationRecipe, MultiLabelRecipe

DIGITS = 6
"""Digits of probabilities and numbers in predictions."""


class TextTask(Task):
    """A task on whole texts, or pairs of texts. Abstract: each kind adds its labels."""

    head = "ForSequenceClassification"

    def prepare_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Make sure that it separates the two texts of a pair."""
        if len(self.recipe.texts) > 1:
            separate_pairs(tokenizer)

    def examples(self, rows: Dataset, encoder: TextEncoder, *, labelled: bool = True) -> LabelledExamples:
        """Encode texts or pairs."""
        fields = encoder.encode(*(texts_of(rows, column) for column in self.recipe.texts))
        return LabelledExamples(fields | ({"labels": self.labels_of(rows)} if labelled else {}))

    @abstractmethod
    def labels_of(self, rows: Dataset) -> Ragged:
        """Give the labels of each row as numbers."""


class LabellingTask(TextTask):
    """Labels are decided on. Abstract: each kind says which were."""

    labels: Labels

    @abstractmethod
    def prediction(self, probabilities: np.ndarray) -> Prediction:
        """Say what is predicted where the labels have these probabilities, (L,)."""

    def count_words(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        """Predict from words alone, learned from the same rows."""
        columns = [[texts_of(split, column) for column in self.recipe.texts] for split in (train, rows)]
        bag, references = BagOfWords(columns[0]), self.references(train)
        return [*map(self.prediction, bag.probabilities(references, len(self.labels), columns[1]))]

    @abstractmethod
    def found(self, predictions: Sequence[Prediction]) -> np.ndarray:
        """Give what was decided as numbers: a label for each row, (E,), or zeros and ones, (E, L)."""

    def score_of_rows(
        self, predictions: Sequence[Prediction], references: Sequence[Any]
    ) -> Callable[[np.ndarray], float]:
        """Give a function that computes the metric of some rows, which needs no probabilities."""
        score = DECISION_SCORES[self.metric_for_best_model]
        found, right = self.found(predictions), np.asarray(references)
        return lambda rows: score(found[rows], right[rows])

    def breakdown(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> list[LabelRow]:
        """Score each label."""
        return label_table(self.found(predictions), np.asarray(references), self.labels.names)


class Classification(LabellingTask):
    """One label for a text, or for a pair."""

    recipe: ClassificationRecipe
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
        self.labels = Labels.of(facts)
        self.shares = np.array(facts["shares"])

    @classmethod
    def require_labels(cls, recipe: ClassificationRecipe, rows: Dataset) -> None:
        """Refuse what is no label."""
        cls.strata(recipe, rows)

    @classmethod
    def strata(cls, recipe: ClassificationRecipe, rows: Dataset) -> list[str]:
        """Give the labels of rows."""
        known = labels_known(rows, recipe.label, recipe.label_names)
        values = enumerate(values_of(rows, recipe.label))
        return [name_of(value, known, row, recipe.label) for row, value in values]

    @staticmethod
    def find(recipe: ClassificationRecipe, train: Dataset) -> Facts:
        """Find the labels, and the share of the rows that has each."""
        labels = find_labels(train, recipe.label, recipe.label_names)
        if recipe.metric_for_best_model == "f1" and len(labels) != 2:
            raise ValueError(
                f"task.metric_for_best_model is f1, which needs two labels, but there are {len(labels)}: set "
                "task.metric_for_best_model=f1_macro"
            )
        counts = np.bincount(labels.numbers_of(train, recipe.label), minlength=len(labels))
        return labels.facts | {"shares": (counts / counts.sum()).tolist()}

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
            is_learned = self.shares > 0  # a label that is only named has no frequency
            shares = np.where(is_learned, self.shares * is_learned.sum(), 1.0)
            weights = torch.tensor(1 / shares, dtype=torch.float32)
        return SingleLabelObjective(weights, self.recipe.label_smoothing)

    def predictions(self, answers: Sequence[np.ndarray], rows: Dataset) -> list[Prediction]:
        """Give the most probable label and the probabilities of all."""
        return [
            self.prediction(probabilities)
            for probabilities in softmax(np.stack(answers).astype(np.float64), axis=1)
        ]

    def prediction(self, probabilities: np.ndarray) -> Prediction:
        """Say the most probable label (L,)."""
        shown = dict(zip(self.labels.names, np.round(probabilities, DIGITS).tolist(), strict=True))
        best = int(probabilities.argmax())
        score = shown[self.labels.names[best]]
        return {"label": self.labels.value(best), "score": score, "scores": shown}

    def references(self, rows: Dataset) -> np.ndarray:
        """The numbers of the labels."""
        return self.labels.numbers_of(rows, self.recipe.label)

    def score(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> dict[str, float]:
        """Score the labels."""
        probabilities = np.array([list(each["scores"].values()) for each in predictions])
        return label_scores(probabilities, np.asarray(references))

    def plain(
        self, predictions: Sequence[Prediction], references: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Give the numbers of the labels."""
        return self.found(predictions).tolist(), np.asarray(references).tolist()

    def error(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> np.ndarray:
        """How much surer the model was of its label than of the right one."""
        pairs = zip(predictions, references, strict=True)
        return np.array(
            [each["score"] - each["scores"][self.format_reference(right)] for each, right in pairs]
        )

    def format_prediction(self, prediction: Prediction) -> str:
        """The label, and how sure the model was."""
        return f"{prediction['label']} ({prediction['score']:.0%})"

    def format_reference(self, reference: Any) -> str:
        """The label."""
        return self.labels.names[reference]

    def confusions(
        self, predictions: Sequence[Prediction], references: Sequence[Any]
    ) -> tuple[Sequence[str], np.ndarray]:
        """Count labels taken for labels."""
        found = self.found(predictions)
        return self.labels.names, count_confusions(found, np.asarray(references), len(self.labels))

    def found(self, predictions: Sequence[Prediction]) -> np.ndarray:
        """Give the numbers of the predicted labels, (E,)."""
        return np.array([self.labels.numbers[str(each["label"])] for each in predictions])

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        """Predict the most frequent label, with the shares of all."""
        return [self.prediction(self.shares)] * len(rows)


class MultiLabel(LabellingTask):
    """Any number of labels for a text, or for a pair."""

    recipe: MultiLabelRecipe
    metrics = {"f1_micro": True, "f1_macro": True, "accuracy": True, "loss": False}

    def __init__(self, recipe: MultiLabelRecipe, facts: Facts):
        super().__init__(recipe, facts)
        self.labels = Labels.of(facts)

    @classmethod
    def require_labels(cls, recipe: MultiLabelRecipe, rows: Dataset) -> None:
        """Refuse what is no list of labels."""
        known = labels_known(rows, recipe.labels, recipe.label_names)
        for row, values in enumerate(lists_of(rows, recipe.labels, "labels")):
            require_set(values, known, row, recipe.labels)

    @staticmethod
    def find(recipe: MultiLabelRecipe, train: Dataset) -> Facts:
        """Find the labels, and whether rows list them or have a 0 or 1 for each."""
        names = hot_names(train, recipe.labels, recipe.label_names)
        if names:
            tell_of_hot(recipe.labels, names, are_named=bool(recipe.label_names))
            labels = Labels(names)
        else:
            labels = find_labels(train, recipe.labels, recipe.label_names, are_lists=True, least=1)
        facts = labels.facts | {"are_hot": bool(names)}
        sets = MultiLabel(recipe, facts).references(train)
        if (sets == sets[0]).all():
            shared = ", ".join(labels.names[number] for number in np.flatnonzero(sets[0])) or "none"
            raise ValueError(f"all rows have the same labels ({shared}): there is nothing to learn")
        return facts

    @property
    def config_fields(self) -> dict[str, Any]:
        """The labels' names."""
        return self.labels.config_fields | {"problem_type": "multi_label_classification"}

    def references(self, rows: Dataset) -> np.ndarray:
        """Say of each row and label whether it holds, (E, L).

        Raises:
            ValueError: A row has no list, or a label that is none of the task's.
        """
        column, is_hot = self.recipe.labels, self.facts.get("are_hot", False)
        lists = enumerate(lists_of(rows, column, "labels"))
        return np.stack([set_of(values, self.labels, row, column, is_hot=is_hot) for row, values in lists])

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
        shown = dict(zip(self.labels.names, np.round(probabilities, DIGITS).tolist(), strict=True))
        probable = [number for number, score in enumerate(shown.values()) if score > 0.5]
        return {"labels": list(map(self.labels.value, probable)), "scores": shown}

    def score(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> dict[str, float]:
        """Score the sets of labels."""
        return set_scores(self.found(predictions), np.asarray(references))

    def error(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> np.ndarray:
        """How many labels are missing or too many."""
        return np.abs(self.found(predictions) - np.asarray(references)).sum(axis=1)

    def format_prediction(self, prediction: Prediction) -> str:
        """The labels."""
        return ", ".join(map(str, prediction["labels"])) or "none"

    def format_reference(self, reference: Any) -> str:
        """The labels."""
        return ", ".join(self.labels.names[number] for number in np.flatnonzero(reference)) or "none"

    def found(self, predictions: Sequence[Prediction]) -> np.ndarray:
        """Say of each row and label whether it was predicted, (E, L)."""
        return (np.array([list(each["scores"].values()) for each in predictions]) > 0.5).astype(np.int64)

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        """Predict for each label whether most rows have it."""
        return [self.prediction(self.references(train).mean(axis=0))] * len(rows)
