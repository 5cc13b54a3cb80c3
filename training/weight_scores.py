"""What a run's weights score on held-out data: those of the present step, and every average of them."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from accelerate import Accelerator
from torch import nn

from .averaging import WeightAverage, mean_with
from .books import hash_of_weights
from .evaluation import evaluate_held_out
from .final_weights import LAST, MEAN, judged_kind, scores_of
from .objective import Objective
from .recipe import TrainingRecipe
from .sharding import gathered, whole_weights
from .stages import TrainingData


@dataclass
class WeightScores:
    """Measures a run's kinds of weights, and keeps the latest scores."""

    model: nn.Module
    """Prepared by the accelerator."""
    objective: Objective
    data: TrainingData
    recipe: TrainingRecipe
    accelerator: Accelerator
    averages: dict[str, WeightAverage]
    """Of the model's weights, by their kind."""
    values: dict[str, float] = field(default_factory=dict)
    """The latest scores; those of averages have their kind and a stroke before their names."""
    step: int = -1
    """When they were measured."""

    def measure_all(self, step: int) -> None:
        """Score all weights after a step, if there is anything to measure them on."""
        kinds = [LAST, *self.averages]
        self.values = {name: value for kind in kinds for name, value in self.measure(kind).items()}
        self.step = step

    def measure(self, kind: str) -> dict[str, float]:
        """Score one kind of weights; there are no scores if there is nothing to measure it on."""
        if self.data.held_out is None:
            return {}
        with self._in_place(kind), gathered(self.model, self.accelerator):
            scores = evaluate_held_out(
                self.model,
                self.objective,
                self.data.held_out,
                self.data.held_out_steps,
                self.accelerator,
                parts_steps=self.data.parts_steps,
            )
        return scores if kind == LAST else {f"{kind}/{name}": value for name, value in scores.items()}

    def measure_mean(self, model: nn.Module, checkpoints: Sequence[Path]) -> dict[str, float]:
        """Average the bare model's weights with those of checkpoints, and score the mean."""
        self.averages[MEAN] = mean_with(model, checkpoints)
        scores = self.measure(MEAN)
        self.values |= scores
        return scores

    def hashes(self) -> dict[str, str]:
        """Hash the weights that are scored, by their kind; in the main process alone."""
        found = {}
        for kind in [LAST, *self.averages]:
            with self._in_place(kind):
                weights = whole_weights(self.accelerator.unwrap_model(self.model), self.accelerator)
                if weights:
                    found[kind] = hash_of_weights(weights)
        return found

    def _in_place(self, kind: str) -> AbstractContextManager[None]:
        return nullcontext() if kind == LAST else self.averages[kind].in_place()

    @property
    def criterion(self) -> float:
        """What the best checkpoint is lowest in; infinite if there is nothing to measure it on."""
        if self.data.held_out is None:
            return math.inf
        return self.data.held_out.criterion(scores_of(judged_kind(self.recipe), self.values))
