"""How the answers to the task are scored, and what gives some without a Transformer: counting."""

from collections.abc import Mapping, Sequence

import numpy as np
from datasets import Dataset

from ..finetune.task import Prediction, Task
from .bag_of_words import predict_by_words

Rows = Mapping[str, Dataset]
"""By split."""

BAG_OF_WORDS = "bag of words"
MOST_FREQUENT = "most frequent"


def score_labels(predictions: Sequence[Prediction], rows: Dataset) -> np.ndarray:
    """Tell which labels are right, (E,)."""
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
