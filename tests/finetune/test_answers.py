"""Asking a model, and remembering what it said when it was best."""

import pytest
import torch

from tercet.finetune import answers
from tercet.finetune.answers import Examiner, judge
from tercet.finetune.prepared import Prepared, prepare


@pytest.fixture
def study(recipe_of) -> Prepared:
    """Prepare a classification with an encoder."""
    return prepare(recipe_of("classification", "encoder"))


@pytest.fixture
def times_asked(monkeypatch) -> list[int]:
    """Count in its only entry how often a model is asked."""
    times, ask = [0], answers.ask

    def counting(*arguments):
        times[0] += 1
        return ask(*arguments)

    monkeypatch.setattr(answers, "ask", counting)
    return times


def test_an_examiner_remembers_what_the_best_model_said(study, times_asked):
    split, model = study.splits["validation"], study.pretrained.model.eval()
    examiner = Examiner(study.task, split)
    best = min((examiner.measure(changed(model, seed)) for seed in range(4)), key=study.task.minimized_metric)
    assert times_asked == [4]
    remembered = examiner.judge(model, best)
    assert times_asked == [4]
    again = min(
        (judge(changed(model, seed), study.task, split.rows, split.examples) for seed in range(4)),
        key=lambda judged: study.task.minimized_metric(judged.scores),
    )
    assert remembered.scores == best == again.scores
    assert remembered.predictions == again.predictions


def test_an_examiner_asks_again_where_it_remembers_another_model(study, times_asked):
    split, model = study.splits["validation"], study.pretrained.model.eval()
    examiner = Examiner(study.task, split)
    examiner.measure(changed(model, 0))
    other = judge(changed(model, 1), study.task, split.rows, split.examples)
    assert examiner.judge(model, other.scores) == other
    assert times_asked == [3]


def test_an_examiner_that_was_resumed_asks(study, times_asked):
    split, model = study.splits["validation"], study.pretrained.model.eval()
    fresh = Examiner(study.task, split)
    judged = judge(model, study.task, split.rows, split.examples)
    assert fresh.judge(model, judged.scores) == judged
    assert times_asked == [2]


def changed(model, seed):
    """Give a model's head random weights, in place."""
    torch.manual_seed(seed)
    torch.nn.init.normal_(model.classifier.out_proj.weight)
    return model
