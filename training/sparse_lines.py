"""Which lines of a run are shown where no terminal shows a bar: a few; the log has them all."""

STEPS, EVALUATIONS = 8, 4
"""Lines about steps and about evaluations."""


class SparseLines:
    """Chooses lines evenly over a run, and the first, which says how long the run will take.

    Args:
        steps: Of the run.
        most: Lines, besides the first.
    """

    def __init__(self, steps: int, most: int):
        self.steps, self.most, self.num_shown = steps, most, -1

    def is_due(self, step: int) -> bool:
        """Tell whether a line of this step is to be shown; a run's first and last ones always are."""
        due = step * self.most // self.steps
        if due <= self.num_shown and step < self.steps:
            return False
        self.num_shown = due
        return True
