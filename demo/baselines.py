"""How the answers to a task are scored, and what answers it without a Transformer.

packages     right or wrong                  bag of words; the label that most training rows have
summaries    ROUGE-L with the true line      the first sentence of the text (LEAD)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from datasets import Dataset

from ..finetune.task import Prediction, Task
from ..metrics.texts import rouge_of_each
from .bag_of_words import predict_by_words

Rows = Mapping[str, Dataset]
"""By split."""

BAG_OF_WORDS = "bag of words"
MOST_FREQUENT = "most frequent"
FIRST_SENTENCE = "first sentence"


@dataclass(frozen=True)
class TaskBaselines:
    """What the answers to a task are measured with."""

    metric: str
    """What a score is called."""
    score_each: Callable[[Sequence[Prediction], Dataset], np.ndarray]
    """Scores predictions of rows, (E,): from 0 to 1."""
    answers: Callable[[Task, Rows], dict[str, list[Prediction]]]
    """Predicts the test rows without a Transformer, in one way or several; the best comes first."""


def score_labels(predictions: Sequence[Prediction], rows: Dataset) -> np.ndarray:
    """Tell which labels are right, (E,)."""
    said = np.array([prediction["label"] for prediction in predictions])
    return (said == np.array(rows["label"][:])).astype(np.float64)


def score_texts(predictions: Sequence[Prediction], rows: Dataset) -> np.ndarray:
    """Give each text's ROUGE-L, (E,)."""
    return rouge_of_each([said["text"] for said in predictions], rows["summary"][:])["rougeL"]


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


def repeat_first_sentences(task: Task, rows: Rows) -> dict[str, list[Prediction]]:
    """Repeat how each text begins."""
    return {FIRST_SENTENCE: task.guess(rows["train"], rows["test"])}


TASK_BASELINES = {
    "packages": TaskBaselines("accuracy", score_labels, label_by_counting),
    "summaries": TaskBaselines("ROUGE-L", score_texts, repeat_first_sentences),
}
"""By task."""
