"""Correlations are scipy's, and 0 where scipy has none."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import mean_squared_error as sklearn_mean_squared_error

from tercet.training.metrics.numbers import number_scores


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("num_values", [None, 3], ids=["distinct", "ties"])
@pytest.mark.parametrize("num_examples", [2, 100])
def test_number_scores_are_those_of_the_libraries(dtype, num_values, num_examples):
    rng = np.random.default_rng(1)
    references = rng.normal(size=num_examples).astype(dtype)
    found = references + rng.normal(size=num_examples)
    if num_values is not None:
        found, references = found.round(), references.round()
    found[0], references[0], found[1], references[1] = 5, 4, -5, -4
    scores = number_scores(found, references)
    assert scores["pearson"] == pytest.approx(stats.pearsonr(found, references).statistic, abs=1e-12)
    assert scores["spearman"] == pytest.approx(stats.spearmanr(found, references).statistic, abs=1e-12)
    assert scores["mean_squared_error"] == pytest.approx(sklearn_mean_squared_error(references, found))
    assert all(type(score) is float for score in scores.values())


@pytest.mark.parametrize("num_examples", [1, 5])
@pytest.mark.filterwarnings("error")
def test_what_does_not_vary_has_correlation_zero(num_examples):
    """Where scipy says nan, a run would have nothing to choose a checkpoint by."""
    constant, other = np.full(num_examples, 0.1), np.arange(num_examples, dtype=float)
    for found, references in [(constant, other), (other, constant), (constant, constant)]:
        scores = number_scores(found, references)
        assert scores["pearson"] == scores["spearman"] == 0
        assert scores["mean_squared_error"] == pytest.approx(np.mean((found - references) ** 2))
