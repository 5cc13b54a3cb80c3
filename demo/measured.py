"""How often something is right, with its 95 % interval, and how far ahead it is of something else."""

from dataclasses import dataclass

import numpy as np

from ..metrics.bootstrap import mean_interval


@dataclass(frozen=True)
class Measured:
    """A score for each row, from 0 to 1."""

    scores: np.ndarray
    """Of each row, (E,)."""

    @property
    def score(self) -> float:
        """The mean."""
        return float(self.scores.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """The mean's 95 % interval."""
        return mean_interval(self.scores)

    @property
    def in_percent(self) -> str:
        """The mean and its interval, in percent."""
        low, high = self.interval
        return f"{100 * self.score:.1f} ({100 * low:.1f} to {100 * high:.1f})"

    def lead_over(self, other: "Measured") -> tuple[float, float]:
        """Return the 95 % interval of how much better this is, row by row."""
        return mean_interval(self.scores - other.scores)
