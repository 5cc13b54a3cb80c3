"""Intervals are scipy's percentile intervals, and as wide as the normal distribution says."""

import numpy as np
import pytest
from scipy.stats import bootstrap

from tercet.training.metrics.bootstrap import bootstrap_interval, mean_interval


@pytest.mark.parametrize("statistic", [np.mean, np.median, np.std])
@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_intervals_are_those_of_scipy(statistic, confidence):
    values = np.random.default_rng(0).normal(size=50)
    expected = bootstrap(
        (values,), statistic, method="percentile", n_resamples=300, confidence_level=confidence,
        rng=np.random.default_rng(7),
    ).confidence_interval  # fmt: skip
    ours = bootstrap_interval(
        lambda indices: statistic(values[indices]), 50, confidence=confidence, resamples=300, seed=7
    )
    assert ours == pytest.approx((expected.low, expected.high))


def test_means_have_the_interval_of_their_rows():
    values = np.random.default_rng(1).random(40)
    assert mean_interval(values, seed=3) == bootstrap_interval(lambda rows: values[rows].mean(), 40, seed=3)
