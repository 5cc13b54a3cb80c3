"""Intermediate models of a run: after which steps one is kept, and by which name it is known.

    revisions: 1000      step-1000, step-2000, ...
    revisions: babylm    chck_1M, ..., chck_9M, chck_10M, ..., chck_90M, chck_100M, ..., chck_1000M

Unlike a checkpoint, a revision is a model as people load it, without the optimizer's state, and none is ever
deleted. The names by words are those of the BabyLM challenge (Charpentier et al., 2025), whose evaluation
reads them from the Hub. Words read are the tokens read, times the words per token of the stage's examples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ..devices.sharding import whole_weights
from ..loop import Progress, Training

BABYLM = "babylm"
"""The rule by words."""

MILLION = 1_000_000

MARKS = (*range(1, 10), *range(10, 100, 10), *range(100, 1001, 100))
"""Millions of words after which BabyLM asks for a model."""

Keep = Callable[[str, Mapping[str, Tensor], Progress, Mapping[str, float]], None]
"""Saves a revision: its name, whole weights, how far the run has come, what was measured at this step."""


@dataclass
class RevisionSeries:
    """Watches the steps of a run, and lets a model be kept whenever one is due."""

    rule: int | Literal["babylm"]
    """As in the recipe."""
    keep: Keep
    """Called on the main process."""
    words_per_token: Sequence[tuple[int, float]] = ()
    """First step of each stage, and words per token of its examples, for the rule by words."""
    tokens: int = 0
    """Read before the present step."""

    def due(self, progress: Progress) -> list[str]:
        """Name the revisions that are due after a step: none, one, or all marks that a long step has passed.

        >>> from tercet.training.loop import Progress
        >>> from tercet.training.checkpoints.revisions import RevisionSeries
        >>> series = RevisionSeries("babylm", print, [(0, 0.5)], tokens=13_000_000)
        >>> progress = Progress(step=9, tokens=15_000_000, words=6_500_000)
        >>> series.due(progress), progress.words
        (['chck_7M'], 7500000.0)
        """
        if self.rule != BABYLM:
            return [f"step-{progress.step}"] if progress.step % self.rule == 0 else []
        words, rates = progress.words, [rate for first, rate in self.words_per_token if first < progress.step]
        progress.words += (progress.tokens - self.tokens) * rates[-1]
        self.tokens = progress.tokens
        passed = (mark for mark in MARKS if words < mark * MILLION <= progress.words)
        return [f"chck_{mark}M" for mark in passed]

    def keep_due(self, names: list[str], training: Training, file: str, scores: Mapping[str, float]) -> None:
        """Keep what is due under its names; every process calls this.

        Args:
            file: Name in a checkpoint of the kind of weights that is kept.
            scores: Measured at this step; empty if nothing was.
        """
        with training.kinds_of_weights[file]:
            weights = whole_weights(training.bare_model, training.accelerator)
            if training.accelerator.is_main_process:
                for name in names:
                    self.keep(name, weights, training.progress, scores)
