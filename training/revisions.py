"""Intermediate models of a run: after which steps one is kept, and by which name it is known.

    revisions: 1000      step-1000, step-2000, ...
    revisions: babylm    chck_1M, ..., chck_9M, chck_10M, ..., chck_90M, chck_100M, ..., chck_1000M

Unlike a checkpoint, a revision is a model as people load it, without the optimizer's state, and none is ever
deleted. The names by words are those of the BabyLM challenge (Charpentier et al., 2025), whose evaluation
reads them from the Hub. Words read are the tokens read of each text, times its words per token in the stage.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from .checkpoint import RunState
from .loop import Progress
from .sharding import whole_weights

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
    words_per_token: Sequence[tuple[int, Mapping[str, float]]] = ()
    """First step of each stage, and what the rule by words needs of it: of each text, by its name; of a run
    that reads one text, by an empty name."""
    tokens: Mapping[str, int] = field(default_factory=dict)
    """Read of each text before the present step."""

    def begin(self, progress: Progress) -> None:
        """Go on from where a run stands."""
        self.tokens = progress.tokens_of | {"": progress.tokens}

    def due(self, progress: Progress) -> list[str]:
        """Name the revisions that are due after a step: none, one, or all marks that a long step has passed.

        >>> from tercet.training.loop import Progress
        >>> from tercet.training.revisions import RevisionSeries
        >>> series = RevisionSeries("babylm", print, [(0, {"": 0.5})], {"": 13_000_000})
        >>> progress = Progress(step=9, tokens=15_000_000, words=6_500_000)
        >>> series.due(progress), progress.words
        (['chck_7M'], 7500000.0)
        """
        if self.rule != BABYLM:
            return [f"step-{progress.step}"] if progress.step % self.rule == 0 else []
        before, words = self.tokens, progress.words
        self.begin(progress)
        rates = [rates for first_step, rates in self.words_per_token if first_step < progress.step][-1]
        progress.words += sum(
            (self.tokens.get(name, 0) - before.get(name, 0)) * rate for name, rate in rates.items()
        )
        passed = (mark for mark in MARKS if words < mark * MILLION <= progress.words)
        return [f"chck_{mark}M" for mark in passed]

    def keep_due(self, names: list[str], run: RunState, file: str, scores: Mapping[str, float]) -> None:
        """Keep what is due under its names; every process calls this.

        Args:
            names: From `due`.
            run: Holds the weights.
            file: Of which kind of weights: that which has this name in a checkpoint.
            scores: Measured at this step; empty if nothing was.
        """
        with run.kinds_of_weights[file]:
            weights = whole_weights(run.bare_model, run.accelerator)
            if run.accelerator.is_main_process:
                for name in names:
                    self.keep(name, weights, run.progress, scores)
