"""Asking a model, and remembering what it said when it was best."""

import numpy as np
import pytest
import torch

from tercet.finetune import evaluation
from tercet.finetune.evaluation import Evaluator, evaluate_rows
from tercet.finetune.inputs import find_inputs
from tercet.finetune.prepared import Prepared, prepare


@pytest.fixture
def prepared(recipe_of) -> Prepared:
    return prepare(find_inputs(recipe_of("classification", "encoder")))


@pytest.fixture
def times_asked(monkeypatch) -> list[int]:
    """Count in its only entry how often a model is asked."""
    times, run = [0], evaluation.prediction_loop

    def counting(*arguments):
        times[0] += 1
        return run(*arguments)

    monkeypatch.setattr(evaluation, "prediction_loop", counting)
    return times


def test_an_examiner_remembers_what_the_best_model_said(prepared, times_asked):
    split, model = prepared.splits["validation"], prepared.pretrained.model.eval()
    evaluator = Evaluator(prepared.task, split)
    best = min(
        (evaluator.measure(changed(model, seed)) for seed in range(4)), key=prepared.task.minimized_metric
    )
    assert times_asked == [4]
    remembered = evaluator.evaluate(model, best)
    assert times_asked == [4]
    again = min(
        (evaluate_rows(changed(model, seed), prepared.task, split.rows, split.examples) for seed in range(4)),
        key=lambda judged: prepared.task.minimized_metric(judged.scores),
    )
    assert remembered.scores == best == again.scores
    assert remembered.predictions == again.predictions


def test_an_examiner_asks_again_where_it_remembers_another_model(prepared, times_asked):
    split, model = prepared.splits["validation"], prepared.pretrained.model.eval()
    evaluator = Evaluator(prepared.task, split)
    evaluator.measure(changed(model, 0))
    other = evaluate_rows(changed(model, 1), prepared.task, split.rows, split.examples)
    assert evaluator.evaluate(model, other.scores) == other
    assert times_asked == [3]


def test_an_examiner_that_was_resumed_asks(prepared, times_asked):
    split, model = prepared.splits["validation"], prepared.pretrained.model.eval()
    fresh = Evaluator(prepared.task, split)
    judged = evaluate_rows(model, prepared.task, split.rows, split.examples)
    assert fresh.evaluate(model, judged.scores) == judged
    assert times_asked == [2]


def changed(model, seed):
    """Give a model's head random weights, in place."""
    torch.manual_seed(seed)
    torch.nn.init.normal_(model.classifier.out_proj.weight)
    return model


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("classification", {"label_smoothing": 0.3}),
        ("classification", {"class_weights": "balanced"}),
        ("classification", {"label_smoothing": 0.3, "class_weights": "balanced"}),
        ("multiple_choice", {}),
    ],
)
def test_the_held_out_loss_is_the_mean_of_minus_log_p_whatever_is_trained(kind, changes, recipe_of):
    prepared = prepare(find_inputs(recipe_of(kind, task=changes)))
    split, model = prepared.splits["validation"], prepared.pretrained.model.eval()
    with torch.no_grad():
        for weight in model.parameters():  # answers that differ
            weight.mul_(3)
    found = evaluate_rows(model, prepared.task, split.rows, split.examples)
    column = {"classification": "label", "multiple_choice": "gold"}[kind]
    right = [each["scores"][row[column]] for each, row in zip(found.predictions, split.rows, strict=True)]
    assert found.scores["loss"] == pytest.approx(-np.log(right).mean(), rel=1e-4)
