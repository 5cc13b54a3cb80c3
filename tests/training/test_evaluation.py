"""Evaluation: the same numbers however the examples are cut, and nothing disturbed."""

import math

import pytest
import torch
from accelerate import Accelerator

from tercet.training.batches import StepDataset, one_pass
from tercet.training.evaluation import HeldOut, evaluate, evaluate_held_out, micro_batches
from tercet.training.objective import Objective

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
    with pytest.raises(NotImplementedError, match=r"UnscoredObjective is scored otherwise: leave HeldOut"):
        evaluate_held_out(toys.Model(), unscored, HeldOut(source), steps, Accelerator(cpu=True))
