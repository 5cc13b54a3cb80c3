"""Predictions of a model for the examples of a task, and their scores.

Examples of like length are read together, as many at once as fit, and answers come back in the order of the
examples.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn

from ..data.steps.examples import pick
from ..data.steps.objective import INDEX, Batch
from ..data.steps.step_planning import cut_evenly
from ..training.evaluation import ratio
from .encoding import LabelledExamples
from .splits import Split
from .tasks.objectives import TaskObjective, group_edges
from .tasks.task import Prediction, Task

TOKENS_AT_ONCE = 8192
"""Tokens that a model reads at once when it learns nothing."""


@dataclass(frozen=True)
class Evaluation:
    """What a model predicted for a split, and how good that is."""

    predictions: list[Prediction]
    """One for each row."""
    scores: dict[str, float]
    """By the names of the task's metrics; `loss` is in nats, or squared units, per target, without smoothing
    and weights of labels."""


def evaluate_rows(
    model: nn.Module,
    task: Task,
    rows: Dataset,
    examples: LabelledExamples,
    tokens_at_once: int = TOKENS_AT_ONCE,
) -> Evaluation:
    """Predict every row of a split with a model in evaluation mode, and score the predictions."""
    answers, loss = prediction_loop(model, task.objective_for(model), examples, tokens_at_once)
    predictions = task.predictions(answers, rows)
    references = task.references(rows)
    scores = task.score(predictions, references) | task.library_scores(predictions, references)
    return Evaluation(predictions, scores | {"loss": loss})


class Evaluator:
    """Evaluates a model on a split while it learns, and keeps the best evaluation for later."""

    def __init__(self, task: Task, split: Split):
        self.task = task
        self.split = split
        self.best: Evaluation | None = None

    def measure(self, model: nn.Module) -> dict[str, float]:
        """Score a model in evaluation mode."""
        evaluation = evaluate_rows(model, self.task, self.split.rows, self.split.examples)
        if self.best is None or self.task.minimized_metric(evaluation.scores) < self.task.minimized_metric(
            self.best.scores
        ):
            self.best = evaluation
        return evaluation.scores

    def evaluate(self, model: nn.Module, earlier_scores: Mapping[str, float]) -> Evaluation:
        """Evaluate a model, in evaluation mode, that had these scores earlier; the best is not repeated."""
        if self.best is not None and self.best.scores == earlier_scores:
            return self.best
        return evaluate_rows(model, self.task, self.split.rows, self.split.examples)


@torch.no_grad()
def prediction_loop(
    model: nn.Module, objective: TaskObjective[Any], examples: LabelledExamples, tokens_at_once: int
) -> tuple[list[np.ndarray], float]:
    """Compute a model's answers to examples, and the mean loss of those that have labels, else nan."""
    answers: list[Any] = [None] * len(examples)
    loss, num_targets = 0.0, 0
    device = next(model.parameters()).device
    for batch in batches_of(objective, examples, tokens_at_once):
        batch = {
            name: value.to(device) if isinstance(value, torch.Tensor) else value
            for name, value in batch.items()
        }
        outputs = objective.outputs(model, batch)
        for index, answer in zip(batch[INDEX].tolist(), objective.answers(outputs, batch), strict=True):
            answers[index] = answer
        if "labels" in examples.fields:
            loss += float(objective.held_out_loss(outputs, batch))
            num_targets += int(objective.targets(batch)[objective.term])
    return answers, ratio(loss, num_targets)


def batches_of(
    objective: TaskObjective[Any], examples: LabelledExamples, tokens_at_once: int
) -> Iterator[Batch]:
    """Collate examples from short to long, nearly as many tokens in each batch, groups of them as a whole."""
    order = np.argsort(examples.lengths, kind="stable")
    groups = group_edges(len(order), objective.group_size if "labels" in examples.fields else 1)
    lengths = np.add.reduceat(examples.lengths[order], groups[:-1])
    parts = min(len(lengths), -(-int(lengths.sum()) // tokens_at_once))
    for first, last in pairwise(groups[cut_evenly(lengths, parts)]):
        yield objective.collate(pick(examples, order[first:last]), 0)
