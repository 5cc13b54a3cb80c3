"""Tasks about a text, or a pair of texts, as a whole: one label, or several.

A column holds sets of labels as lists of a row's labels, or as a 0 or 1 for each label (multi-hot). Lists of
equal length that hold nothing but zeros and ones are multi-hot: as lists of labels, they would all name two
labels again and again. Their places are the labels' numbers, which `task.label_names` names.

Shapes: E rows, L labels.
"""

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import torch
from datasets import ClassLabel, Dataset, List
from pydantic import Field
from scipy.special import softmax
from transformers import PreTrainedTokenizerBase

from ...data.files.bad_rows import RowError
from ...data.files.columns import WHOLE, lists_of, texts_of
from ...data.steps.packing import Ragged
from ...training.metrics.labels import (
    DECISION_SCORES,
    LabelRow,
    count_confusions,
    label_scores,
    label_table,
    set_scores,
)
from ..encoding import LabelledExamples, TextEncoder, numbers, vectors
from ..frames import separate_pairs
from .labels import (
    Labels,
    as_whole,
    find_labels,
    label_lists,
    label_values,
    labels_known,
    name_of,
    require_labels_from_zero,
    written,
)
from .objectives import MultiLabelObjective, SingleLabelObjective
from .recipes import ColumnFields, Columns, Modules, RowsRecipe
from .task import Facts, Prediction, Predictions, RowScore, Task


def hot_names(rows: Dataset, column: str, names: Sequence[str]) -> list[str]:
    """Return the recipe's names, or numbers, of the places of multi-hot lists; none if there are no such."""
    feature = rows.features[column]
    lists = lists_of(rows, column, "labels")
    widths = {len(values) for values in lists}
    width = max(widths)
    is_table = len(widths) == 1 and (width > 1 or len(names) == width == 1)
    are_numbers = isinstance(feature, List) and isinstance(feature.feature, ClassLabel)
    if are_numbers or not is_table or not all(map(are_hot, lists)):
        return []
    if names and len(names) != width:
        raise ValueError(
            f"column {column!r} has lists of {width} zeros and ones, one for each label, but "
            f"task.label_names has {len(names)} names: name each of the {width}"
        )
    return list(names) or [str(number) for number in range(width)]


def are_hot(values: Sequence[Any]) -> bool:
    """Return whether a list holds nothing but zeros, ones and truths.

    >>> [are_hot(values) for values in ([0, 1], [1.0, 0.0], [True, False], ["0", "1"], [1, 2], ["a"])]
    [True, True, True, True, False, False]
    """
    return all(value in (0, 1, "0", "1") for value in values)


def require_once(values: Sequence[Any], row: int, column: str) -> None:
    """Raise a `RowError` if a list of labels has a number twice: it may be meant in the other form."""
    numbers = [name for value in values if WHOLE.fullmatch(name := as_whole(written(value, row, column)))]
    if len(set(numbers)) < len(numbers):
        raise RowError(
            row,
            f"has {values!r:.60} in column {column!r}, a list of labels that names one twice: name each "
            "once, or give all rows lists of one length with a 0 or 1 for each label",
            f"names a label twice in column {column!r}",
        )


def set_of(values: Sequence[Any], labels: Labels, row: int, column: str, *, is_hot: bool) -> np.ndarray:
    """Return of each label whether a row's list has it, (L,); the list may hold zeros and ones (`is_hot`)."""
    if is_hot:
        if len(values) != len(labels) or not are_hot(values):
            raise RowError(
                row,
                f"has {values!r:.60} in column {column!r}, where training rows have {len(labels)} zeros and "
                "ones, one for each label: correct it",
                f"has no zeros and ones for all labels in column {column!r}",
            )
        return np.array([int(value) for value in values], dtype=np.int64)
    found = np.zeros(len(labels), dtype=np.int64)
    require_once(values, row, column)
    found[[labels.number(value, row, column) for value in values]] = 1
    return found


DIGITS = 6
"""Digits of probabilities and numbers in predictions."""


class TextTask(Task):
    """A task on whole texts, or pairs of texts. Abstract: each kind adds its labels."""

    head = "ForSequenceClassification"

    def prepare_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if len(self.recipe.texts) > 1:
            separate_pairs(tokenizer)

    def examples(self, rows: Dataset, encoder: TextEncoder, *, labelled: bool = True) -> LabelledExamples:
        fields = encoder.encode(*(texts_of(rows, column) for column in self.recipe.texts))
        return LabelledExamples(fields | ({"labels": self.labels_of(rows)} if labelled else {}))

    @abstractmethod
    def labels_of(self, rows: Dataset) -> Ragged:
        """Return the labels of each row as numbers."""


class LabellingTask(TextTask):
    """Labels are decided on. Abstract: each kind says which were."""

    @cached_property
    def labels(self) -> Labels:
        return Labels.of(self.facts)

    def require_consistent(self, rows: Dataset) -> None:
        require_labels_from_zero(rows, self.recipe.label_columns[0], self.recipe.label_names)

    @abstractmethod
    def prediction(self, probabilities: np.ndarray) -> Prediction:
        """Predict from the probabilities of the labels, (L,)."""

    def count_words(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        from .bag_of_words import BagOfWords  # reports alone count words, by what takes long to import

        columns = [[texts_of(split, column) for column in self.recipe.texts] for split in (train, rows)]
        bag, references = BagOfWords(columns[0]), self.references(train)
        return [*map(self.prediction, bag.probabilities(references, len(self.labels), columns[1]))]

    @abstractmethod
    def found(self, predictions: Predictions) -> np.ndarray:
        """Return what was decided as numbers: a label for each row, (E,), or zeros and ones, (E, L)."""

    def score_of_rows(self, predictions: Predictions, references: Sequence[Any]) -> RowScore:
        # which needs no probabilities
        score = DECISION_SCORES[self.metric_for_best_model]
        found, right = self.found(predictions), np.asarray(references)
        return lambda rows: score(found[rows], right[rows])

    def breakdown(self, predictions: Predictions, references: Sequence[Any]) -> list[LabelRow]:
        return label_table(self.found(predictions), np.asarray(references), self.labels.names)


@dataclass(frozen=True)
class ClassificationRecipe(RowsRecipe):
    """One label for a text, or for a pair of texts."""

    COLUMNS = ColumnFields(("texts",), ("label",))
    TERMS = {"classification": ("labels of texts", "text-classification")}
    METRICS = {
        "matthews_correlation": "Matthews correlation",
        "calibration_error": "expected calibration error",
    }

    kind: Literal["classification"]
    texts: Columns = ("text",)
    """Columns of the text, or of the pair."""
    label: str = "label"
    """Column of the label, a name or a number."""
    label_names: tuple[str, ...] = ()
    """Names of the labels 0, 1, ... in that column, or of a nameless head; by default, its values."""
    class_weights: Literal["balanced"] | None = None
    """`balanced`: labels are weighted by their inverse frequency, so that all classes have the same
    weight."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability that is distributed over all labels (Szegedy et al., 2016, section 7)."""
    metric_for_best_model: Literal["accuracy", "f1", "f1_macro", "matthews_correlation"] = "accuracy"
    """Metric that selects the best checkpoint; `f1` is that of the second of two labels."""
    metrics: Modules = ()
    """Modules of the `evaluate` library that are computed and reported as well."""

    def build(self, facts: Facts | None = None) -> "Classification":
        return Classification(self, facts)


class Classification(LabellingTask):
    """One label for a text, or for a pair."""

    title = "Classification"
    recipe: ClassificationRecipe
    metrics = {
        "accuracy": True,
        "f1": True,
        "f1_macro": True,
        "matthews_correlation": True,
        "calibration_error": False,
        "loss": False,
    }

    @property
    def score_names(self) -> dict[str, str]:
        # which of two labels F1 is of
        return {"f1": f"F1 of {self.labels.names[1]!r}"} if len(self.labels) == 2 else {}

    def require_labels(self, rows: Dataset) -> None:
        self.strata(rows)

    def strata(self, rows: Dataset) -> list[str]:
        column = self.recipe.label
        known = labels_known(rows, column, self.recipe.label_names)
        return [name_of(value, known, row, column) for row, value in enumerate(label_values(rows, column))]

    def labels_in(self, rows: Dataset) -> Iterator[tuple[int, str]]:
        return enumerate(self.strata(rows))

    def find(self, train: Dataset) -> Facts:
        column = self.recipe.label
        labels = find_labels(train, column, self.recipe.label_names)
        if self.metric_for_best_model == "f1" and len(labels) != 2:
            raise ValueError(
                f"task.metric_for_best_model is f1, which needs two labels, but there are {len(labels)}: set "
                "task.metric_for_best_model=f1_macro"
            )
        counts = np.bincount(labels.numbers_of(train, column), minlength=len(labels))
        return labels.facts | {"shares": (counts / counts.sum()).tolist()}

    @property
    def config_fields(self) -> dict[str, Any]:
        return self.labels.config_fields | {"problem_type": "single_label_classification"}

    def labels_of(self, rows: Dataset) -> Ragged:
        return numbers(self.labels.numbers_of(rows, self.recipe.label))

    def objective(self) -> SingleLabelObjective:
        weights = None
        if self.recipe.class_weights == "balanced":
            found = np.array(self.facts["shares"])
            is_learned = found > 0  # a label that is only named has no frequency
            shares = np.where(is_learned, found * is_learned.sum(), 1.0)
            weights = torch.tensor(1 / shares, dtype=torch.float32)
        return SingleLabelObjective(weights, self.recipe.label_smoothing)

    def predictions(self, answers: Sequence[np.ndarray], rows: Dataset) -> list[Prediction]:
        return [
            self.prediction(probabilities)
            for probabilities in softmax(np.stack(answers).astype(np.float64), axis=1)
        ]

    def prediction(self, probabilities: np.ndarray) -> Prediction:
        shown = dict(zip(self.labels.names, np.round(probabilities, DIGITS).tolist(), strict=True))
        best = int(probabilities.argmax())
        score = shown[self.labels.names[best]]
        return {"label": self.labels.value(best), "score": score, "scores": shown}

    def references(self, rows: Dataset) -> np.ndarray:
        return self.labels.numbers_of(rows, self.recipe.label)

    def score(self, predictions: Predictions, references: Sequence[Any]) -> dict[str, float]:
        probabilities = np.array([list(each["scores"].values()) for each in predictions])
        return label_scores(self.found(predictions), probabilities, np.asarray(references))

    def plain(self, predictions: Predictions, references: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        return self.found(predictions).tolist(), np.asarray(references).tolist()

    def error(self, predictions: Predictions, references: Sequence[Any]) -> np.ndarray:
        # how much surer the model was of its label than of the right one
        pairs = zip(predictions, references, strict=True)
        return np.array(
            [each["score"] - each["scores"][self.format_reference(right)] for each, right in pairs]
        )

    def sureness(self, predictions: Predictions) -> np.ndarray:
        return np.array([each["score"] for each in predictions])

    def format_prediction(self, prediction: Prediction) -> str:
        return f"{prediction['label']} ({prediction['score']:.0%})"

    def format_reference(self, reference: Any) -> str:
        return self.labels.names[reference]

    def confusions(
        self, predictions: Predictions, references: Sequence[Any]
    ) -> tuple[Sequence[str], np.ndarray]:
        found = self.found(predictions)
        return self.labels.names, count_confusions(found, np.asarray(references), len(self.labels))

    def found(self, predictions: Predictions) -> np.ndarray:
        return np.array([self.labels.numbers[str(each["label"])] for each in predictions])

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        # with the shares of all
        return [self.prediction(np.array(self.facts["shares"]))] * len(rows)


@dataclass(frozen=True)
class MultiLabelRecipe(RowsRecipe):
    """Any number of labels for a text, or for a pair of texts."""

    COLUMNS = ColumnFields(("texts",), ("labels",))
    TERMS = {"multi_label": ("sets of labels", "text-classification")}
    METRICS = {
        "f1_micro": "micro F1",
    }

    kind: Literal["multi_label"]
    texts: Columns = ("text",)
    """Columns of the text, or of the pair."""
    labels: str = "labels"
    """Column of the lists of labels, names or numbers, or of a 0 or 1 for each label (multi-hot)."""
    label_names: tuple[str, ...] = ()
    """Names of the labels 0, 1, ... in that column, or of the places of its zeros and ones."""
    metric_for_best_model: Literal["f1_micro", "f1_macro", "accuracy"] = "f1_micro"
    """Metric that selects the best checkpoint; `accuracy` is subset accuracy (the exact set of labels)."""

    def build(self, facts: Facts | None = None) -> "MultiLabel":
        return MultiLabel(self, facts)


class MultiLabel(LabellingTask):
    """Any number of labels for a text, or for a pair."""

    title = "Labelling"
    recipe: MultiLabelRecipe
    metrics = {"f1_micro": True, "f1_macro": True, "accuracy": True, "loss": False}

    def require_labels(self, rows: Dataset) -> None:
        column = self.recipe.labels
        known = labels_known(rows, column, self.recipe.label_names)
        for row, values in enumerate(label_lists(rows, column)):
            if not are_hot(values):
                for value in values:
                    written(value, row, column) if known is None else known.number(value, row, column)
                require_once(values, row, column)

    def labels_in(self, rows: Dataset) -> Iterator[tuple[int, str]]:
        for row, held in zip(*np.nonzero(self.references(rows)), strict=True):
            yield int(row), self.labels.names[held]

    def find(self, train: Dataset) -> Facts:
        column, known = self.recipe.labels, self.recipe.label_names
        names = hot_names(train, column, known)
        if names:
            called = "" if known else ", called by their numbers: task.label_names names them"
            warnings.warn(
                f"column {column!r} has a 0 or 1 for each of {len(names)} labels{called}", stacklevel=2
            )
            labels = Labels(names, kind="text" if known else "integer")
        else:
            labels = find_labels(train, column, known, are_lists=True, least=1)
        facts = labels.facts | {"are_hot": bool(names)}
        sets = MultiLabel(self.recipe, facts).references(train)
        if (sets == sets[0]).all():
            shared = ", ".join(labels.names[number] for number in np.flatnonzero(sets[0])) or "none"
            raise ValueError(
                f"all rows have the same labels ({shared}): there is nothing to learn; add rows with others, "
                "or name another column"
            )
        return facts

    @property
    def config_fields(self) -> dict[str, Any]:
        return self.labels.config_fields | {"problem_type": "multi_label_classification"}

    def references(self, rows: Dataset) -> np.ndarray:
        # whether each label holds, (E, L)
        column, is_hot = self.recipe.labels, self.facts.get("are_hot", False)
        lists = enumerate(label_lists(rows, column))
        return np.stack([set_of(values, self.labels, row, column, is_hot=is_hot) for row, values in lists])

    def labels_of(self, rows: Dataset) -> Ragged:
        return vectors(self.references(rows))

    def objective(self) -> MultiLabelObjective:
        return MultiLabelObjective()

    def predictions(self, answers: Sequence[np.ndarray], rows: Dataset) -> list[Prediction]:
        return [self.prediction(1 / (1 + np.exp(-answer.astype(np.float64)))) for answer in answers]

    def prediction(self, probabilities: np.ndarray) -> Prediction:
        shown = dict(zip(self.labels.names, np.round(probabilities, DIGITS).tolist(), strict=True))
        probable = [number for number, score in enumerate(shown.values()) if score > 0.5]
        return {"labels": list(map(self.labels.value, probable)), "scores": shown}

    def score(self, predictions: Predictions, references: Sequence[Any]) -> dict[str, float]:
        return set_scores(self.found(predictions), np.asarray(references))

    def error(self, predictions: Predictions, references: Sequence[Any]) -> np.ndarray:
        # how many labels are missing or too many
        return np.abs(self.found(predictions) - np.asarray(references)).sum(axis=1)

    def format_prediction(self, prediction: Prediction) -> str:
        return ", ".join(map(str, prediction["labels"])) or "none"

    def format_reference(self, reference: Any) -> str:
        return ", ".join(self.labels.names[number] for number in np.flatnonzero(reference)) or "none"

    def found(self, predictions: Predictions) -> np.ndarray:
        # whether each label was predicted, (E, L)
        return (np.array([list(each["scores"].values()) for each in predictions]) > 0.5).astype(np.int64)

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        return [self.prediction(self.references(train).mean(axis=0))] * len(rows)
