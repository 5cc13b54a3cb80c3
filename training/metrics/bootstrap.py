"""How far a score can be trusted: it is computed again on rows drawn with replacement from those at hand.

The interval between two percentiles of these scores is where the score of all rows of the same kind is
thought to lie (Efron and Tibshirani, 1993, section 13.3). It says nothing of other seeds of training.

Legend: E examples, R resamples.
"""

from collections.abc import Callable

import numpy as np


def bootstrap_interval(
    score: Callable[[np.ndarray], float],
    num_rows: int,
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the ends of the percentile interval of a score, which is called with indices of rows, (E,)."""
    return percentile_interval(bootstrap_scores(score, num_rows, resamples=resamples, seed=seed), confidence)


def bootstrap_scores(
    score: Callable[[np.ndarray], float], num_rows: int, *, resamples: int = 1000, seed: int = 0
) -> np.ndarray:
    """Return the score of rows drawn again and again, (R,).

    The draws depend on the seed and the number of rows alone. The difference between the results of two
    models on the same rows is therefore the paired bootstrap of their difference.
    """
    rng = np.random.default_rng(seed)
    return np.array([score(rng.integers(num_rows, size=num_rows)) for _ in range(resamples)])


def percentile_interval(scores: np.ndarray, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval between two percentiles of bootstrapped scores, (R,); NaN if one is undefined."""
    low, high = np.quantile(scores, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def mean_interval(
    values: np.ndarray, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Return the interval of a score that is the mean of the rows' own scores, (E,)."""
    return bootstrap_interval(
        lambda indices: float(values[indices].mean()),
        len(values),
        confidence=confidence,
        resamples=resamples,
        seed=seed,
    )


def deviation(values: list[float]) -> float:
    """Estimate the standard deviation of which these are a sample; 0 of a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
