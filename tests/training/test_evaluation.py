"""Evaluation: the same numbers however the examples are cut, and nothing disturbed."""

import json
import math

import pytest
import torch
from accelerate import Accelerator

from tercet.training.batches import StepDataset, one_pass
from tercet.training.checkpoint import best
from tercet.training.evaluation import (
    HeldOut,
    _divide,
    evaluate,
    evaluate_held_out,
    micro_batches,
    without_targets,
)
from tercet.training.fit import CHECKPOINTS
from tercet.training.objective import IGNORE, Objective

CPU = torch.device("cpu")


@pytest.fixture
def score(objective, source):
    def score(model, limit=10_000, **arguments):
        data = StepDataset(
            source, objective, tokens_per_step=300, tokens_per_micro_batch=limit, seed=0, shuffle=False
        )
        return evaluate(
            model, objective, micro_batches(one_pass(data), CPU), Accelerator(cpu=True), **arguments
        )

    return score


def test_scores_do_not_depend_on_the_cut(toys, score):
    model = toys.Model()
    assert score(model, limit=30) == pytest.approx(score(model), rel=1e-6)


def test_a_uniform_model_scores_as_chance_does(toys, score):
    model = toys.Model()
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    scores = score(model, num_bytes={"token": 1000})
    assert scores["token/loss"] == pytest.approx(math.log(23))
    assert scores["token/perplexity"] == pytest.approx(23)
    assert scores["length/perplexity"] == pytest.approx(2)
    assert scores["loss"] == pytest.approx(math.log(23) + 0.5 * math.log(2))
    assert scores["token/bits_per_byte"] == pytest.approx(scores["token/targets"] * math.log2(23) / 1000)
    assert "length/bits_per_byte" not in scores


def test_accuracy_counts_hits(toys, score, source):
    model = toys.Model()
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    model.lengths.bias.data[1] = 1.0  # every sequence is taken for a long one
    assert score(model)["length/accuracy"] == pytest.approx((source.lengths > 8).mean())


def test_modes_and_generators_are_left_as_they_were(toys, score):
    model = toys.Model(dropout=0.5)
    model.norm.eval()
    before = torch.get_rng_state()
    first = score(model)
    assert first == score(model), "dropout is off"
    assert model.training
    assert model.dropout.training
    assert not model.norm.training
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_model_itself_is_told_that_training_goes_on(toys, score):
    told = []

    class Model(toys.Model):
        def train(self, mode=True):
            told.append(mode)
            return super().train(mode)

    score(Model())
    assert told[-1] is True


def test_a_hopeless_model_has_infinite_perplexity(toys, score):
    model = toys.Model()
    model.embedding.weight.data.mul_(1e5)
    assert score(model)["token/perplexity"] == math.inf


class UnscoredObjective(Objective):
    """One whose answers no sum can score."""

    weights = {"answer": 1.0}

    def __init__(self, learned: Objective):
        self.learned = learned

    def collate(self, examples, rng):
        return self.learned.collate(examples, rng)

    def targets(self, batch):
        return self.learned.targets(batch)

    def losses(self, model, batch):
        return self.learned.losses(model, batch)


def test_what_has_no_rows_of_its_own_is_measured_otherwise(toys, objective):
    model = toys.Model(dropout=0.5)
    seen = []

    def measure(bare):
        seen.append((bare, bare.training))
        return {"answer/f1": 0.5}

    scores = evaluate_held_out(
        model, UnscoredObjective(objective), HeldOut(measure=measure), None, Accelerator(cpu=True)
    )
    assert scores == {"answer/f1": 0.5}
    assert seen == [(model, False)]
    assert model.training


def test_an_objective_without_scores_wants_no_rows_to_be_scored(toys, objective, source):
    unscored = UnscoredObjective(objective)
    steps = StepDataset(
        source, unscored, tokens_per_step=300, tokens_per_micro_batch=300, seed=0, shuffle=False
    )
    with pytest.raises(NotImplementedError, match=r"UnscoredObjective does not use HeldOut"):
        evaluate_held_out(toys.Model(), unscored, HeldOut(source), steps, Accelerator(cpu=True))


class WithoutTokens(Objective):
    """The toy's two terms, of which one has no target."""

    def __init__(self, inner):
        self.inner, self.weights = inner, inner.weights

    def collate(self, examples, rng):
        batch = self.inner.collate(examples, rng)
        return batch | {"labels": torch.full_like(batch["labels"], IGNORE)}

    def targets(self, batch):
        return self.inner.targets(batch)

    def losses(self, model, batch):
        return self.inner.losses(model, batch)

    def scores(self, model, batch):
        return self.inner.scores(model, batch)


def test_without_a_target_nothing_is_defined(toys, objective, source):
    data = StepDataset(
        source,
        WithoutTokens(objective),
        tokens_per_step=300,
        tokens_per_micro_batch=300,
        seed=0,
        shuffle=False,
    )
    batches = micro_batches(one_pass(data), CPU)
    scores = evaluate(toys.Model(), objective, batches, Accelerator(cpu=True), num_bytes={"token": 10})
    undefined = ("loss", "token/loss", "token/perplexity", "token/accuracy", "token/bits_per_byte")
    assert all(math.isnan(scores[name]) for name in undefined)
    assert scores["token/targets"] == 0
    assert 0 < scores["length/loss"] < 9
    assert without_targets(scores) == ["token"]


def test_an_undefined_evaluation_is_never_the_best(toys, objective, source, tmp_path, capsys):
    """It wears patience out, it is said, and every file that tells of it is JSON."""
    recipe = toys.recipe(steps=9, evaluate_every=1, checkpoint_every=1, patience=3)
    outcome = toys.fit(
        toys.Model(),
        WithoutTokens(objective),
        source,
        recipe,
        tmp_path,
        Accelerator(cpu=True),
        held_out=HeldOut(toys.Source(30, seed=1)),
    )
    assert (outcome.progress.step, outcome.progress.best) == (3, None)
    assert math.isnan(outcome.scores["loss"])
    assert best(tmp_path / CHECKPOINTS) is None
    told = json.loads((outcome.checkpoint / "state.json").read_text(), parse_constant=pytest.fail)
    assert told["scores"]["loss"] is told["criterion"] is None
    assert "the held-out data have no target of token: the loss is undefined" in capsys.readouterr().err
    again = toys.fit(
        toys.Model(),
        WithoutTokens(objective),
        source,
        recipe,
        tmp_path,
        Accelerator(cpu=True),
        held_out=HeldOut(toys.Source(30, seed=1)),
        resume=True,
    )
    assert math.isnan(again.scores["loss"])


def test_weightless_terms_without_a_target_spoil_no_loss():
    scores = _divide({"a": [0, 0, 0], "b": [2, 3, 1]}, {"b": 1.0}, {})
    assert scores["loss"] == 1.5
    assert math.isnan(scores["a/loss"])
