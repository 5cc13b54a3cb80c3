"""How much of a teacher's score its students keep, and how sure that is.

The interval is a percentile bootstrap (Efron and Tibshirani, 1993, section 13.3) of the ratio of both scores,
on the same rows drawn for both.

Shapes: E examples, n targets of a batch, S sequences of it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from ...data.steps.examples import ExampleSource, pick
from ...data.steps.objective import on_device
from ...data.steps.step_planning import cut_evenly
from ...distill.model_outputs import RequiredOutputs, compute_outputs
from ...distill.task_step import TaskStep
from ...finetune.evaluation import evaluate_rows
from ...finetune.splits import encoder_of
from ...finetune.tasks.task import Prediction, Task
from ...modeling import TercetPreTrainedModel
from ...modeling.heads.losses import at_least_float32
from ...training.devices.precision import choose_precision, products_in
from ...training.evaluation import ratio
from ...training.metrics.bootstrap import bootstrap_interval, bootstrap_scores, percentile_interval
from ...training.metrics.texts import score_of_rows
from ...training.token_objective import TokenObjective
from ..verdicts import trusted

TOKENS_AT_ONCE = 4096
"""Tokens that are read together."""

MOST_EXAMPLES = 2000
"""Held-out examples that are compared, spread over all there are."""

RESAMPLES = 300
"""How often rows of a task are drawn: all of a task's scores are computed each time."""


@dataclass(frozen=True)
class Kept:
    """A score beside the teacher's."""

    score: float | None
    """None where there was nothing to score."""
    share: float | None
    """Part of the teacher's score: 1 is all of it. Of scores that are better when lower, it is the inverse;
    where the teacher's score is not above 0, there is none."""
    interval: tuple[float, float] | None
    """95 % interval of the share; there is none of fewer than `FEWEST_ROWS` rows, or if among the drawn rows
    the share may be none."""


@torch.inference_mode()
def score_examples(model: TercetPreTrainedModel, base: TokenObjective, source: ExampleSource) -> np.ndarray:
    """Score held-out examples: targets, loss in nats and hits of each, (E, 3); all models read the same."""
    examples = source.epoch(0)
    lengths = np.asarray(examples.lengths)
    chosen = np.unique(np.linspace(0, len(lengths) - 1, min(MOST_EXAMPLES, len(lengths))).round().astype(int))
    order = chosen[np.argsort(lengths[chosen], kind="stable")]
    parts = min(len(order), -(-int(lengths[order].sum()) // TOKENS_AT_ONCE))
    device = next(model.parameters()).device
    scored = []
    for number, (first, last) in enumerate(pairwise(cut_evenly(lengths[order], parts))):
        batch = base.collate(pick(examples, order[first:last]), number)
        scored.append(scores_by_sequence(model, base, on_device(batch, device)))
    return np.concatenate(scored)


def scores_by_sequence(
    model: TercetPreTrainedModel, base: TokenObjective, batch: dict[str, Any]
) -> np.ndarray:
    """Add up targets, losses and hits of each sequence, (S, 3)."""
    positions, tokens = base.output_positions(batch)
    logits = compute_outputs(model, batch, positions, RequiredOutputs(logits=True)).logits
    assert logits is not None
    losses = F.cross_entropy(at_least_float32(logits), tokens, reduction="none")
    values = torch.stack((torch.ones_like(losses), losses, (logits.argmax(-1) == tokens).float()), dim=1)
    bounds = batch["cu_seq_lens_q"]
    owners = torch.searchsorted(bounds[1:].contiguous(), positions, right=True)
    sums = torch.zeros(len(bounds) - 1, 3, dtype=torch.float64, device=values.device)
    return sums.index_add_(0, owners, values.double()).cpu().numpy()


def keep_of_examples(own: np.ndarray, teachers: np.ndarray) -> dict[str, Kept]:
    """Compare accuracy and perplexity on the same examples, (E, 3) each."""

    def perplexity(rows: np.ndarray) -> float:
        return float(np.exp(ratio(float(rows[:, 1].sum()), rows[:, 0].sum())))

    def keep(score: Callable[[np.ndarray], float], is_better_high: bool) -> Kept:
        scores = [lambda rows, of=examples: score(of[rows]) for examples in (own, teachers)]
        return keep_of_rows(scores, len(own), is_better_high=is_better_high)

    return {"accuracy": keep(accuracy, True), "perplexity": keep(perplexity, False)}


def keep_of_translations(
    own: Sequence[str], teachers: Sequence[str], references: Sequence[str], **compared: Any
) -> Kept:
    """Compare BLEU, 0 to 100, of what was written for the same sources; `compared`: see `score_of_rows`."""
    scores = [score_of_rows("bleu", texts, references, **compared) for texts in (own, teachers)]
    return keep_of_rows(scores, len(own), is_better_high=True)


def lead(
    scores: Sequence[Callable[[np.ndarray], float]], num_rows: int, *, resamples: int = 1000
) -> list[float] | None:
    """Return the 95 % interval of how far the first score is above the second, on the same rows drawn.

    There is none of fewer than `FEWEST_ROWS` rows, or if on some rows a score is not defined.
    """
    own, others = (bootstrap_scores(score, num_rows, resamples=resamples) for score in scores)
    return trusted(percentile_interval(own - others), num_rows)


def lead_of_predictions(
    task: Task, own: Sequence[Prediction], others: Sequence[Prediction], references: Sequence[Any]
) -> list[float] | None:
    """Compare the score by which a task is judged, on the same rows."""
    drawn = [task.drawn(predictions, references) for predictions in (own, others)]
    scores = [task.score_of_rows(*each) for each in drawn]
    return lead(scores, len(drawn[0][0]), resamples=RESAMPLES)


def lead_of_examples(own: np.ndarray, others: np.ndarray) -> list[float] | None:
    """Compare accuracies on the same examples, (E, 3) each."""
    return lead([lambda rows, of=examples: accuracy(of[rows]) for examples in (own, others)], len(own))


def lead_of_translations(
    own: Sequence[str], others: Sequence[str], references: Sequence[str], **compared: Any
) -> list[float] | None:
    """Compare BLEU of what was written for the same sources; `compared`: see `score_of_rows`."""
    scores = [score_of_rows("bleu", texts, references, **compared) for texts in (own, others)]
    return lead(scores, len(own))


def accuracy(rows: np.ndarray) -> float:
    """Return the share of hits among all targets of some examples, (E, 3)."""
    return ratio(float(rows[:, 2].sum()), rows[:, 0].sum())


def keep_of_rows(
    scores: Sequence[Callable[[np.ndarray], float]],
    num_rows: int,
    *,
    is_better_high: bool,
    resamples: int = 1000,
) -> Kept:
    """Compare two functions that score the rows of these indices: the student's and the teacher's."""

    def share(rows: np.ndarray) -> float:
        return share_of(*(score(rows) for score in scores), is_better_high=is_better_high)

    everything = np.arange(num_rows)
    interval = bootstrap_interval(share, num_rows, resamples=resamples)
    return as_kept(scores[0](everything), share(everything), trusted(interval, num_rows))


def share_of(own: float, teachers: float, *, is_better_high: bool) -> float:
    """Return the share of a teacher's score, or of one that is better when lower the inverse.

    Of nothing, nobody keeps a share, and of a correlation below zero a share would mean nothing: then it is
    not a number.

    >>> share_of(0.25, 0.5, is_better_high=True), share_of(0.25, 0.0, is_better_high=True)
    (0.5, nan)
    """
    part, whole = (own, teachers) if is_better_high else (teachers, own)
    return part / whole if min(whole, teachers) > 0 else math.nan


def as_kept(score: float, share: float, interval: Sequence[float] | None) -> Kept:
    """Put a score beside what is known of its share."""
    return Kept(
        None if math.isnan(score) else score,
        None if math.isnan(share) else share,
        None if interval is None else (interval[0], interval[1]),
    )


def predict_split(step: TaskStep, model: TercetPreTrainedModel, split: str) -> list[Prediction]:
    """Let a model answer the rows of a split, as it reads them, in the precision of the students' runs.

    They are scored as they were trained: what rounding costs, it costs all of them.
    """
    rows, device = step.rows[split], next(model.parameters()).device
    encoder = encoder_of(model, step.tokenizer, step.recipe.data.max_length)
    with products_in(choose_precision(step.recipe.training.precision, device), device):
        return evaluate_rows(model.eval(), step.task, rows, step.task.examples(rows, encoder)).predictions


def keep_of_predictions(
    task: Task, own: Sequence[Prediction], teachers: Sequence[Prediction], references: Sequence[Any]
) -> Kept:
    """Compare the score by which a task is judged, on the same rows."""
    drawn = [task.drawn(predictions, references) for predictions in (own, teachers)]
    scores = [task.score_of_rows(*each) for each in drawn]
    is_better_high = task.metrics[task.metric_for_best_model]
    return keep_of_rows(scores, len(drawn[0][0]), is_better_high=is_better_high, resamples=RESAMPLES)
