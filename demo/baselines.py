"""How the answers to the task are scored, and what gives some without a Transformer: counting.

The classifier that a Transformer must beat is logistic regression on how often each word occurs.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from datasets import Dataset
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from ..finetune.task import Prediction, Task

STRENGTHS = (0.01, 0.1, 1.0, 10.0)
"""Regularizations that are tried, from strong to weak."""

Labelled = tuple[Sequence[str], Sequence[str]]
"""Texts and their labels."""


def predict_by_words(train: Labelled, validation: Labelled, texts: Sequence[str]) -> list[str]:
    """Predict labels after learning from counts of words, regularized as suits the validation rows best.

    Args:
        train: What is learned from.
        validation: What the regularization is chosen by.
        texts: To be labelled.
    """
    models = [
        make_pipeline(CountVectorizer(), LogisticRegression(C=strength, max_iter=1000)).fit(*train)
        for strength in STRENGTHS
    ]
    best = max(models, key=lambda model: model.score(*validation))
    return np.asarray(best.predict(texts)).tolist()


Rows = Mapping[str, Dataset]
"""By split."""

BAG_OF_WORDS = "bag of words"
MOST_FREQUENT = "most frequent"


def score_labels(predictions: Sequence[Prediction], rows: Dataset) -> np.ndarray:
    """Return which labels are right, (E,)."""
    said = np.array([prediction["label"] for prediction in predictions])
    return (said == np.array(rows["label"][:])).astype(np.float64)


def label_by_counting(task: Task, rows: Rows) -> dict[str, list[Prediction]]:
    """Count words, or labels."""
    train, validation = (
        (rows[split]["text"][:], rows[split]["label"][:]) for split in ("train", "validation")
    )
    labels = predict_by_words(train, validation, rows["test"]["text"][:])
    return {
        BAG_OF_WORDS: [{"label": label} for label in labels],
        MOST_FREQUENT: task.guess(rows["train"], rows["test"]),
    }
