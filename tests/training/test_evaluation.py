"""Evaluation: the same numbers however the examples are cut, and nothing disturbed."""

import json
import math

import pytest
import torch
from accelerate import Accelerator

from tercet.data.steps.batches import StepDataset, one_pass
from tercet.data.steps.objective import IGNORE, Objective
from tercet.training.checkpoints.checkpoint import CHECKPOINTS, best
from tercet.training.evaluation import (
    HeldOut,
    _divide,
    evaluate,
    evaluate_held_out,
    micro_batches,
    without_targets,
)

CPU = torch.device("cpu")
STEP = {"tokens_per_step": 300, "seed": 0, "shuffle": False}


@pytest.fixture
def score(objective, source):
    def score(model, limit=10_000, **arguments):
        data = StepDataset(source, objective, **STEP, tokens_per_micro_batch=limit)
        batches = micro_batches(one_pass(data), CPU)
        return evaluate(model, objective, batches, Accelerator(cpu=True), **arguments)

    return score


def test_scores_do_not_depend_on_the_cut(toys, score):
    model = toys.Model()
    assert score(model, limit=30) == pytest.approx(score(model), rel=1e-6)


@pytest.fixture
def uniform(toys):
    """Make a model without preferences."""
    model = toys.Model()
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    return model


def test_a_uniform_model_scores_as_chance_does(uniform, score):
    scores = score(uniform, num_bytes={"token": 1000})
    assert scores["token/loss"] == pytest.approx(math.log(23))
    assert scores["token/perplexity"] == pytest.approx(23)
    assert scores["length/perplexity"] == pytest.approx(2)
    assert scores["loss"] == pytest.approx(math.log(23) + 0.5 * math.log(2))
    assert scores["token/bits_per_byte"] == pytest.approx(scores["token/targets"] * math.log2(23) / 1000)
    assert "length/bits_per_byte" not in scores


def test_accuracy_counts_hits(uniform, score, source):
    uniform.lengths.bias.data[1] = 1.0  # every sequence is taken for a long one
    assert score(uniform)["length/accuracy"] == pytest.approx((source.lengths > 8).mean())


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


@pytest.fixture
def unscored(objective):
    """Make an objective whose answers no sum can score."""
    parts = {name: staticmethod(getattr(objective, name)) for name in ("collate", "targets", "losses")}
    return type("Unscored", (Objective,), parts | {"weights": {"answer": 1.0}})()


def test_what_has_no_rows_of_its_own_is_measured_otherwise(toys, unscored):
    model = toys.Model(dropout=0.5)
    seen = []

    def measure(bare):
        seen.append((bare, bare.training))
        return {"answer/f1": 0.5}

    scores = evaluate_held_out(model, unscored, HeldOut(measure=measure), None, Accelerator(cpu=True))
    assert scores == {"answer/f1": 0.5}
    assert seen == [(model, False)]
    assert model.training


def test_an_objective_without_scores_wants_no_rows_to_be_scored(toys, unscored, source):
    steps = StepDataset(source, unscored, **STEP, tokens_per_micro_batch=300)
    with pytest.raises(NotImplementedError, match=r"Unscored does not use HeldOut"):
        evaluate_held_out(toys.Model(), unscored, HeldOut(source), steps, Accelerator(cpu=True))


@pytest.fixture
def without_tokens(toys):
    """Make the toy's objective of two terms, of which one has no target."""

    class WithoutTokens(toys.Objective):
        def collate(self, examples, seed):
            batch = super().collate(examples, seed)
            return batch | {"labels": torch.full_like(batch["labels"], IGNORE)}

    return WithoutTokens()


def test_without_a_target_nothing_is_defined(toys, without_tokens, source):
    data = StepDataset(source, without_tokens, **STEP, tokens_per_micro_batch=300)
    batches = micro_batches(one_pass(data), CPU)
    scores = evaluate(toys.Model(), without_tokens, batches, Accelerator(cpu=True), num_bytes={"token": 10})
    undefined = ("loss", "token/loss", "token/perplexity", "token/accuracy", "token/bits_per_byte")
    assert all(math.isnan(scores[name]) for name in undefined)
    assert scores["token/targets"] == 0
    assert 0 < scores["length/loss"] < 9
    assert without_targets(scores) == ["token"]


def test_an_undefined_evaluation_is_never_the_best(toys, without_tokens, tmp_path, capsys):
    """It wears patience out, it is said, and every file that tells of it is JSON."""
    recipe = toys.recipe(steps=9, evaluate_every=1, checkpoint_every=1, patience=3)
    parts = {"objective": without_tokens, "held_out": HeldOut(toys.Source(30, seed=1))}
    outcome = toys.train(tmp_path, recipe, **parts)
    assert (outcome.progress.step, outcome.progress.best) == (3, None)
    assert math.isnan(outcome.scores["loss"])
    assert best(tmp_path / CHECKPOINTS) is None
    told = json.loads((outcome.checkpoint / "state.json").read_text(), parse_constant=pytest.fail)
    assert told["scores"]["loss"] is told["criterion"] is None
    assert "the held-out data have no target of token: the loss is undefined" in capsys.readouterr().err
    assert math.isnan(toys.train(tmp_path, recipe, **parts, resume=True).scores["loss"])


def test_weightless_terms_without_a_target_spoil_no_loss():
    scores = _divide({"a": [0, 0, 0], "b": [2, 3, 1]}, {"b": 1.0}, {})
    assert scores["loss"] == 1.5
    assert math.isnan(scores["a/loss"])
