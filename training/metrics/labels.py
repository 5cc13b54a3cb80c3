"""Scores of labels: one for each example, or any number of them.

All but accuracy are scikit-learn's, which takes half a second to import; where a ratio has nothing below its
line, it is 0.

Legend: E examples, L labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from .calibration import calibration_error

# Type checkers read off scikit-learn's default, a text, that no number may stand here.
NOTHING_OF_NOTHING: Any = 0.0
"""The share of nothing that is right."""

Average = Literal["binary", "macro", "micro"]
"""`binary`: F1 of label 1; `macro`: its mean over the labels that occur, found or right; `micro`: F1 of all
decisions."""


@dataclass(frozen=True)
class LabelRow:
    """How one label, or one type of span, is found."""

    label: str
    """Its name."""
    precision: float
    """Share of what was found that is right."""
    recall: float
    """Share of what there is that was found."""
    f1: float
    """Harmonic mean of both."""
    support: int
    """How often it is there."""


def label_scores(found: np.ndarray, probabilities: np.ndarray, references: np.ndarray) -> dict[str, float]:
    """Score one label for each example.

    Args:
        found: Numbers of the predicted labels, (E,).
        probabilities: Probabilities of every label, (E, L).
        references: Numbers of the right labels, (E,).

    Returns:
        `accuracy`, `f1_macro`, `matthews_correlation`, `calibration_error`; and `f1`, that of label 1, if
        there are two labels.
    """
    names = ["accuracy", *(["f1"] if probabilities.shape[1] == 2 else []), "f1_macro", "matthews_correlation"]
    scores = {name: DECISION_SCORES[name](found, references) for name in names}
    return scores | {"calibration_error": calibration_error(probabilities, references)}


def set_scores(found: np.ndarray, references: np.ndarray) -> dict[str, float]:
    """Score sets of labels: zeros and ones, (E, L).

    Returns:
        `f1_micro` of all decisions, `f1_macro` of labels that occur, and `accuracy`, the share of exact sets.
    """
    return {name: DECISION_SCORES[name](found, references) for name in ("f1_micro", "f1_macro", "accuracy")}


def accuracy(found: np.ndarray, references: np.ndarray) -> float:
    """Return the share of examples whose label (E,), or whose set of labels (E, L), is right."""
    return float((found == references).reshape(len(references), -1).all(axis=1).mean())


def f1(found: np.ndarray, references: np.ndarray, average: Average) -> float:
    """Return the F1 of labels (E,), or of sets of labels (E, L)."""
    from sklearn.metrics import f1_score

    labels: Any = None  # those that occur
    if found.ndim == 2:
        occurs = (found | references).any(axis=0)
        labels = np.flatnonzero(occurs) if occurs.any() else range(found.shape[1])
    scored = f1_score(
        several(references), several(found), labels=labels, average=average, zero_division=NOTHING_OF_NOTHING
    )
    return float(scored)


def several(found: np.ndarray) -> np.ndarray:
    """Put a label that nothing has behind sets of labels (E, L): of one column, scikit-learn sees no sets."""
    return found if found.ndim == 1 else np.pad(found, ((0, 0), (0, 1)))


def matthews_correlation(found: np.ndarray, references: np.ndarray) -> float:
    """Return the correlation of labels (E,), -1 to 1; 0 if one side does not vary (Gorodkin, 2004)."""
    from sklearn.metrics import matthews_corrcoef

    both_vary = np.ptp(found) > 0 and np.ptp(references) > 0
    return float(matthews_corrcoef(references, found)) if both_vary else 0.0


DECISION_SCORES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": accuracy,
    "f1": partial(f1, average="binary"),
    "f1_macro": partial(f1, average="macro"),
    "f1_micro": partial(f1, average="micro"),
    "matthews_correlation": matthews_correlation,
}
"""Scores of what was decided, whatever the probabilities: of labels (E,), or of sets of labels (E, L)."""


def count_confusions(found: np.ndarray, references: np.ndarray, num_labels: int) -> np.ndarray:
    """Count what was found (columns) for what is right (rows), (L, L)."""
    from sklearn.metrics import confusion_matrix

    return confusion_matrix(references, found, labels=range(num_labels))


def label_table(found: np.ndarray, references: np.ndarray, names: Sequence[str]) -> list[LabelRow]:
    """Score each label on its own, in the order of their names, also those that never occur.

    Args:
        found: Labels (E,), or sets of labels (E, L).
        references: What is right, of the same shape.
    """
    from sklearn.metrics import precision_recall_fscore_support

    columns: Any = precision_recall_fscore_support(
        several(references), several(found), labels=range(len(names)), zero_division=NOTHING_OF_NOTHING
    )
    rows = zip(names, *(column.tolist() for column in columns), strict=True)
    return [LabelRow(*row) for row in rows]
