"""What a run's weights score on held-out data: those of the present step, and every average of them."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from accelerate import Accelerator
from torch import nn

from .averaging import WeightAverage, mean_with
from .evaluation import evaluate_held_out
from .final_weights import LAST, MEAN, judged_kind, scores_of
from .objective import Objective
from .recipe import TrainingRecipe
from .sharding import gathered
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
        in_place = nullcontext() if kind == LAST else self.averages[kind].in_place()
        with in_place, gathered(self.model, self.accelerator):
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

    @property
    def criterion(self) -> float:
        """What the best checkpoint is lowest in; infinite if there is nothing to measure it on."""
        if self.data.held_out is None:
            return math.inf
        return self.data.held_out.criterion(scores_of(judged_kind(self.recipe), self.values))
