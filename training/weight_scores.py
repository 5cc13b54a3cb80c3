"""What a run's weights score on held-out data: those of the present step, and every average of them."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..modeling.saved.weights import hash_of_weights
from .checkpoints.checkpoint import is_due
from .checkpoints.final_weights import LAST, MEAN, scores_of
from .devices.sharding import gathered, whole_weights
from .evaluation import evaluate_held_out
from .loop import Metrics, Training
from .recipe import TrainingRecipe
from .stages import TrainingData
from .tracking import Tracker, as_scores


@dataclass
class WeightScores:
    """Measures a run's kinds of weights when the recipe says so, and keeps the latest scores."""

    training: Training
    data: TrainingData
    recipe: TrainingRecipe
    tracker: Tracker
    """Writes the scores into the log; its clock stops meanwhile."""
    values: dict[str, float] = field(default_factory=dict)
    """The latest scores; those of averages have their kind and a stroke before their names."""
    step: int = -1
    """When they were measured."""
    is_owed: bool = False
    """Whether an evaluation is due that has not been carried out."""

    def recall(self, checkpoint: dict[str, Any]) -> None:
        """Take over the scores that a checkpoint's state tells of the present weights."""
        self.values = as_scores(checkpoint["scores"])
        self.step = self.training.progress.step if self.values else -1

    def after_step(self, metrics: Metrics) -> None:
        """Evaluate if that is due, and at the run's end.

        As checkpoints, evaluations wait for a finite step: the one that is the best has its checkpoint.
        """
        progress = self.training.progress
        self.is_owed = self.is_owed or is_due(self.recipe.evaluate_every, progress.step)
        if progress.step == self.training.num_steps or (self.is_owed and not progress.is_skipping):
            self.evaluate()
        is_recorded = self.training.metrics.step == progress.step
        if self.training.is_finished and not is_recorded:  # an early end, between two records
            self.tracker.write_step(float(metrics["learning_rate"]))

    def evaluate(self) -> None:
        """Score all weights, if there is anything to measure them on, and judge whether they are better."""
        self.is_owed = False
        if self.data.held_out is None:
            return
        progress = self.training.progress
        with self.tracker.paused():
            kinds = [LAST, *self.training.averages]
            self.values = {name: value for kind in kinds for name, value in self._measure(kind).items()}
            self.step = progress.step
            progress.judge(self.criterion)
            if self.training.is_finished:
                progress.scored = self._hashes()
        self.tracker.record_evaluation(self.values, is_last=self.training.is_finished)

    def evaluate_first(self) -> None:
        """Score the weights that a run begins with; they are no checkpoint, so they are not judged."""
        if scores := self._measure(LAST):
            self.tracker.record_evaluation(scores)

    def evaluate_mean(self, checkpoints: Sequence[Path]) -> None:
        """Average the weights at the run's end with those of checkpoints, and score the mean."""
        from .optimizers.averaging import mean_with  # which most runs do without

        with self.tracker.paused():
            self.training.averages[MEAN] = mean_with(self.training.bare_model, checkpoints)
            scores = self._measure(MEAN)
            self.values |= scores
            if scores:
                self.training.progress.scored = self._hashes()
        if scores:
            self.tracker.record_evaluation(scores, is_last=True)

    @property
    def criterion(self) -> float:
        """What the best checkpoint is lowest in; infinite if there is nothing to measure it on."""
        if self.data.held_out is None:
            return math.inf
        return self.data.held_out.criterion(scores_of(self.recipe.judged_kind, self.values))

    def _measure(self, kind: str) -> dict[str, float]:
        if self.data.held_out is None:
            return {}
        model, accelerator = self.training.model, self.training.accelerator
        with self._in_place(kind), gathered(model, accelerator):
            scores = evaluate_held_out(
                model,
                self.training.objective,
                self.data.held_out,
                self.data.held_out_steps,
                accelerator,
                parts_steps=self.data.parts_steps,
            )
        return scores if kind == LAST else {f"{kind}/{name}": value for name, value in scores.items()}

    def _hashes(self) -> dict[str, str]:
        found, accelerator = {}, self.training.accelerator
        for kind in [LAST, *self.training.averages]:
            with self._in_place(kind):
                weights = whole_weights(accelerator.unwrap_model(self.training.model), accelerator)
                if weights:
                    found[kind] = hash_of_weights(weights)
        return found

    def _in_place(self, kind: str) -> AbstractContextManager[None]:
        return nullcontext() if kind == LAST else self.training.averages[kind].in_place()
