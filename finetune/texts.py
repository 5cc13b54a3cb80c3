"""Tasks about a text, or a pair of texts, as a whole: one label, several, or a number."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn import functional as F

from ..training.objective import Batch, Example
from ..training.examples import gather, has_field
from ..training.packing import Ragged
from ..pretraining.streams import one_stream
from .encoding import TextEncoder
from .examples import LabelledExamples, numbers, vectors
from .labels import Labels, find_labels
from .rows import texts_of, values_of
from .scores import label_scores, number_scores, set_scores
from .task import Prediction, Task, TaskObjective
from .task_recipes import ClassificationRecipe, MultiLabelRecipe, RegressionRecipe

SHOWN_DIGITS = 6
"""Digits of probabilities and numbers in predictions."""


class TextObjective(TaskObjective[Tensor]):
    """Scores of a whole text, (S, L), one row for each example. Abstract: what they are learned from."""

    def collate(self, examples: Sequence[Example], rng: np.random.Generator) -> Batch:
        """Pack the examples; labels are (S,), or (S, 1, L) where an example has several."""
        batch = one_stream(gather(examples, "input_ids"))
        batch["index"] = torch.from_numpy(gather(examples, "index").values)
        if has_field(examples, "token_type_ids"):
            batch["token_type_ids"] = torch.from_numpy(gather(examples, "token_type_ids").values)[None]
        if has_field(examples, "labels"):
            batch["labels"] = one_entry_each(gather(examples, "labels"))
        return batch

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Scores of all labels, (S, L)."""
        return model(**inputs_of(batch)).logits

    def answers(self, outputs: Tensor, batch: Batch) -> list[np.ndarray]:
        """Give the scores of each text, (L,)."""
        return list(outputs.float().cpu().numpy())


class SingleLabelObjective(TextObjective):
    """Cross-entropy of one label.

    Args:
        weights_of_labels: What each label counts (L,), 1 on average over the training rows; alike if `None`.
        label_smoothing: Probability that is spread over all labels.
    """

    def __init__(self, weights_of_labels: Tensor | None = None, label_smoothing: float = 0.0):
        super().__init__("label")
        self.weights_of_labels = weights_of_labels
        self.label_smoothing = label_smoothing

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Sum over the texts."""
        weights = self.weights_of_labels
        return F.cross_entropy(
            outputs.float(),
            batch["labels"],
            None if weights is None else weights.to(outputs.device),
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )


class MultiLabelObjective(TextObjective):
    """Binary cross-entropy of every label, its mean over the labels."""

    def __init__(self):
        super().__init__("labels")

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Sum over the texts."""
        labels = batch["labels"][:, 0].float()
        return F.binary_cross_entropy_with_logits(outputs.float(), labels, reduction="sum") / labels.shape[1]


class RegressionObjective(TextObjective):
    """Squared error."""

    def __init__(self):
        super().__init__("number")

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Sum over the texts."""
        return F.mse_loss(outputs.float()[:, 0], batch["labels"].float(), reduction="sum")


class TextTask(Task):
    """What is said of a whole text, or of a pair. Abstract: each kind adds its labels."""

    head = "ForSequenceClassification"
    recipe: ClassificationRecipe | MultiLabelRecipe | RegressionRecipe

    @property
    def columns(self) -> tuple[str, ...]:
        """The texts."""
        return self.recipe.texts

    @property
    def criterion(self) -> str:
        """As the recipe says."""
        return self.recipe.criterion

    def examples(self, rows: Dataset, encoder: TextEncoder, *, labelled: bool = True) -> LabelledExamples:
        """Encode texts or pairs."""
        fields = encoder.encode(*(texts_of(rows, column) for column in self.columns))
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

    def __init__(self, recipe: ClassificationRecipe, train: Dataset):
        self.recipe = recipe
        self.labels = find_labels(train, recipe.label, recipe.label_names)
        counts = np.bincount(self.labels.numbers_of(train, recipe.label), minlength=len(self.labels))
        self.shares = counts / counts.sum()

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The label."""
        return (self.recipe.label,)

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

    def score(self, predictions: Sequence[Prediction], rows: Dataset) -> dict[str, float]:
        """Score the labels."""
        references = self.labels.numbers_of(rows, self.recipe.label)
        probabilities = np.array([list(each["scores"].values()) for each in predictions])
        return label_scores(probabilities, references)

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        """Predict the most frequent label, with the shares of all."""
        return [self.prediction(self.shares)] * len(rows)


class MultiLabel(TextTask):
    """Any number of labels for a text, or for a pair."""

    metrics = {"f1_micro": True, "f1_macro": True, "accuracy": True, "loss": False}

    def __init__(self, recipe: MultiLabelRecipe, train: Dataset):
        self.recipe = recipe
        self.labels = find_labels(train, recipe.labels, recipe.label_names)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The lists of labels."""
        return (self.recipe.labels,)

    @property
    def config_fields(self) -> dict[str, Any]:
        """The labels' names."""
        return self.labels.config_fields | {"problem_type": "multi_label_classification"}

    def table(self, rows: Dataset) -> np.ndarray:
        """Say of each row and label whether it holds, (E, L)."""
        column = self.recipe.labels
        table = np.zeros((len(rows), len(self.labels)), dtype=np.int64)
        for row, values in enumerate(values_of(rows, column)):
            for value in values:
                table[row, self.labels.number(value, row, column)] = 1
        return table

    def labels_of(self, rows: Dataset) -> Ragged:
        """A zero or one for each label."""
        return vectors(self.table(rows))

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

    def score(self, predictions: Sequence[Prediction], rows: Dataset) -> dict[str, float]:
        """Score the sets of labels."""
        found = np.array([list(each["scores"].values()) for each in predictions]) > 0.5
        return set_scores(found.astype(np.int64), self.table(rows))

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        """Predict for each label whether most rows have it."""
        return [self.prediction(self.table(train).mean(axis=0))] * len(rows)


class Regression(TextTask):
    """A number for a text, or for a pair."""

    metrics = {
        "pearson": True,
        "spearman": True,
        "mean_squared_error": False,
        "loss": False,
    }

    def __init__(self, recipe: RegressionRecipe, train: Dataset):
        self.recipe = recipe
        if np.ptp(self.numbers_of(train)) == 0:
            raise ValueError(
                f"all rows have the same number in column {recipe.label!r}: there is nothing to learn"
            )

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The number."""
        return (self.recipe.label,)

    @property
    def config_fields(self) -> dict[str, Any]:
        """One output."""
        return {"id2label": {0: self.recipe.label}, "label2id": {self.recipe.label: 0}, "problem_type": "regression"}

    def numbers_of(self, rows: Dataset) -> np.ndarray:
        """Give the numbers, (E,).

        Raises:
            ValueError: A value is none.
        """
        column = self.recipe.label
        for row, value in enumerate(values_of(rows, column)):
            if not isinstance(value, (int, float)) or not np.isfinite(value):
                raise ValueError(f"row {row + 1} has {value!r} in column {column!r}, which is no number: correct it")
        return np.array(values_of(rows, column), dtype=np.float32)

    def labels_of(self, rows: Dataset) -> Ragged:
        """One number for each row."""
        return numbers(self.numbers_of(rows))

    def objective(self) -> RegressionObjective:
        """Squared error."""
        return RegressionObjective()

    def predictions(self, answers: Sequence[np.ndarray], rows: Dataset) -> list[Prediction]:
        """Give the number."""
        return [{self.recipe.label: round(float(answer[0]), SHOWN_DIGITS)} for answer in answers]

    def score(self, predictions: Sequence[Prediction], rows: Dataset) -> dict[str, float]:
        """Score the numbers."""
        found = np.array([each[self.recipe.label] for each in predictions])
        return number_scores(found, self.numbers_of(rows))

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        """Predict the mean."""
        return [{self.recipe.label: round(float(self.numbers_of(train).mean()), SHOWN_DIGITS)}] * len(rows)


def inputs_of(batch: Batch) -> Batch:
    """Leave out what the model does not read."""
    return {name: value for name, value in batch.items() if name not in ("index", "labels")}


def one_entry_each(labels: Ragged) -> Tensor:
    """Give labels of examples that have as many: (S,), or (S, 1, L) if there are several."""
    width = int(labels.lengths[0])
    values = torch.from_numpy(labels.values)
    return values if width == 1 else values.view(-1, 1, width)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Turn scores (E, L) into probabilities."""
    powers = np.exp(scores.astype(np.float64) - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
