"""The calibration error is its definition, and a reliability diagram adds up to it."""

import numpy as np
import pytest
from scipy.special import softmax

from tercet.training.metrics.calibration import NUM_BINS, calibration_error, reliability


def slow_calibration_error(probabilities: np.ndarray, references: np.ndarray) -> float:
    """Go through the bins and the examples one by one."""
    error = 0.0
    for number in range(15):
        inside = [
            (row.max(), row.argmax() == reference)
            for row, reference in zip(probabilities, references, strict=True)
            if number / 15 < row.max() <= (number + 1) / 15
        ]
        if inside:
            confidence, hits = (np.mean(values) for values in zip(*inside, strict=True))
            error += len(inside) / len(references) * abs(float(hits - confidence))
    return error


@pytest.mark.parametrize("seed", range(5))
def test_calibration_error_is_its_definition(seed):
    rng = np.random.default_rng(seed)
    references = rng.integers(4, size=200)
    probabilities = softmax(rng.normal(size=(200, 4)) + np.eye(4)[references], axis=1)
    assert calibration_error(probabilities, references) == pytest.approx(
        slow_calibration_error(probabilities, references)
    )


def test_calibration_error_counts_the_edge_to_the_bin_below():
    """0.6 = 9/15 and 0.61 are in different bins, and so their errors do not cancel."""
    probabilities = np.array([[0.6, 0.4], [0.61, 0.39]])
    assert calibration_error(probabilities, np.array([0, 1])) == pytest.approx((0.4 + 0.61) / 2)
    probabilities = np.array([[0.601, 0.399], [0.61, 0.39]])
    assert calibration_error(probabilities, np.array([0, 1])) == pytest.approx((0.61 - 0.399) / 2)


@pytest.mark.parametrize("num_bins", [10, NUM_BINS])
def test_a_reliability_diagram_adds_up_to_the_calibration_error(num_bins):
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, 200)
    is_correct = rng.random(200) < confidence
    found = reliability(confidence, is_correct, num_bins)
    chances, references = np.stack([confidence, 1 - confidence], axis=1), np.where(is_correct, 0, 1)
    assert found["calibration_error"] == calibration_error(chances, references, num_bins)
    sizes = np.array(found["count"])
    distances = np.abs(np.array(found["confidence"]) - found["accuracy"])
    assert found["calibration_error"] == pytest.approx((sizes * distances).sum() / sizes.sum(), rel=1e-12)
    assert sizes.sum() == 200
