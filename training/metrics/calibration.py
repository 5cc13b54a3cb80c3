"""Whether a model is as often correct as it is confident: reliability diagrams and their one number.

Confidence is the highest probability that the model gives to any label. Predictions are sorted into bins of
equal width by it, each of which holds its upper edge (Guo et al., 2017, section 2).

Legend: E examples, L labels.
"""

from typing import Any

import numpy as np

NUM_BINS = 15
"""As in Guo et al., 2017, section 5."""


def calibration_error(probabilities: np.ndarray, references: np.ndarray, num_bins: int = NUM_BINS) -> float:
    """Return the expected calibration error (Guo et al., 2017, equation 3) of one label for each example.

    Args:
        probabilities: Probabilities of every label, (E, L); the most probable one is the prediction.
        references: Numbers of the correct labels, (E,).
    """
    is_correct = probabilities.argmax(axis=-1) == references
    return expected_error(probabilities.max(axis=-1), is_correct, num_bins)


def expected_error(confidence: np.ndarray, is_correct: np.ndarray, num_bins: int = NUM_BINS) -> float:
    """Return the mean distance of accuracy and confidence over the bins, weighted by their examples.

    Args:
        confidence: Confidence of each prediction, (E,).
        is_correct: Whether it is, (E,).
    """
    bins = bins_of(confidence, num_bins)
    return float(np.abs(np.bincount(bins, weights=is_correct - confidence)).sum() / len(confidence))


def reliability(confidence: np.ndarray, is_correct: np.ndarray, num_bins: int = NUM_BINS) -> dict[str, Any]:
    """Compute what a reliability diagram shows; arguments are those of `expected_error`.

    Returns:
        `calibration_error`, and of each bin that has any examples `confidence`, `accuracy` and `count`.
    """
    bins = bins_of(confidence, num_bins)
    counts = np.bincount(bins, minlength=num_bins)
    filled = counts > 0
    sums = (np.bincount(bins, weights=own, minlength=num_bins)[filled] for own in (confidence, is_correct))
    means = [(own / counts[filled]).tolist() for own in sums]
    return {
        "calibration_error": expected_error(confidence, is_correct, num_bins),
        "confidence": means[0],
        "accuracy": means[1],
        "count": counts[filled].tolist(),
    }


def bins_of(confidence: np.ndarray, num_bins: int) -> np.ndarray:
    """Return the number of each prediction's bin, (E,); an upper edge belongs to its bin."""
    return np.searchsorted(np.arange(1, num_bins) / num_bins, confidence)
