"""Scores of numbers. SciPy's statistics are imported where they are called.

Legend: E examples.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np


def number_scores(found: np.ndarray, references: np.ndarray) -> dict[str, float]:
    """Score one number for each example, (E,): `pearson`, `spearman`, `mean_squared_error`."""
    return {name: score(found, references) for name, score in SCORES.items()}


def pearson(found: np.ndarray, references: np.ndarray) -> float:
    """Return the linear correlation, -1 to 1; 0 if one side does not vary.

    It is 0 / 0 then. But a model that says the same of every text tells nothing of their order, and scores as
    guessing does; and a run whose first evaluation is like that still has scores to compare.
    """
    from scipy.stats import pearsonr

    both_vary = np.ptp(found) > 0 and np.ptp(references) > 0
    return float(cast(Any, pearsonr(found, references)).statistic) if both_vary else 0.0


def spearman(found: np.ndarray, references: np.ndarray) -> float:
    """Return the correlation of the ranks, -1 to 1; 0 if one side does not vary."""
    from scipy.stats import rankdata

    return pearson(rankdata(found), rankdata(references))


def mean_squared_error(found: np.ndarray, references: np.ndarray) -> float:
    """Return the mean squared distance, in float64."""
    return float(np.mean((found.astype(np.float64) - references.astype(np.float64)) ** 2))


SCORES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "pearson": pearson,
    "spearman": spearman,
    "mean_squared_error": mean_squared_error,
}
"""All scores of numbers (E,), by their names."""
