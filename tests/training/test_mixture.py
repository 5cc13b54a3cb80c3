"""A mixture of objectives: its shares of text, steps and loss."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import nn

from tercet.data.steps.batches import StepDataset, endless_steps
from tercet.data.steps.objective import COMPONENT, Objective
from tercet.data.steps.packing import pack
from tercet.data.steps.step_planning import fewest_examples, interleave, plan_steps
from tercet.pretraining.objectives.randomness import SequenceDraws
from tercet.training.loop import accumulate_gradients
from tercet.training.mixture import MixedObjective, MixedSource

CPU = torch.device("cpu")
SHARES = (0.25, 0.75)


class Numbers:
    """Examples of one to nine numbers, always the same."""

    def __init__(self, number: int, seed: int):
        draw = np.random.default_rng(seed)
        self.rows = [draw.integers(1, 100, draw.integers(1, 10)) for _ in range(number)]
        self.lengths = np.array([len(row) for row in self.rows])

    def epoch(self, number: int) -> "Numbers":
        return self

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict:
        return {"input_ids": self.rows[index], "index": index}


class Sum(Objective):
    """The weighted sum of the numbers; some of them are targets, by a rate that falls in the run."""

    def __init__(self, term: str, rate: float = 1.0, weight: float = 1.0, progress: float = 0.0):
        self.weights, self.rate, self.progress = {term: weight}, rate, progress
        self.term = term

    def at(self, progress: float) -> "Sum":
        return Sum(self.term, self.rate, self.weights[self.term], progress)

    def collate(self, examples, seed):
        packed = pack([example["input_ids"] for example in examples])
        lengths = packed.cu_seq_lens.diff().numpy()
        numbers = SequenceDraws.of(examples, seed).random(lengths)[None]
        chosen = numbers < self.rate * (1 - self.progress / 2)
        return {
            "input_ids": packed.input_ids,
            "labels": torch.from_numpy(chosen),
            "cu_seq_lens_q": packed.cu_seq_lens,
            "cu_seq_lens_k": packed.cu_seq_lens,
        }

    def targets(self, batch):
        return {self.term: batch["labels"].sum()}

    def losses(self, model, batch):
        return {self.term: (model.weight[batch["input_ids"]][..., 0] * batch["labels"]).sum()}

    def scores(self, model, batch):
        return {self.term: {"loss": self.losses(model, batch)[self.term], "accuracy": batch["labels"].sum()}}


@pytest.fixture
def steps():
    def build(**changes) -> StepDataset:
        sources, objectives = [Numbers(300, 0), Numbers(200, 1)], [Sum("a", 0.5), Sum("b", 0.3, 2.0)]
        options = {"tokens_per_step": 160, "tokens_per_micro_batch": 50, "seed": 3} | changes
        return StepDataset(
            MixedSource(sources, SHARES, seed=7), MixedObjective(objectives, SHARES), **options
        )

    return build


def test_sources_that_cut_alike_are_read_once_between_them():
    numbers = Numbers(300, 0)
    source = MixedSource([numbers, numbers], SHARES, seed=5)
    epochs = [source.epoch(number) for number in (0, 1)]
    for examples in epochs:
        assert sorted(examples.indices) == list(range(300))
        assert Counter(examples.components) == {0: 75, 1: 225}
    first, second = ({*epoch.indices[epoch.components == 0]} for epoch in epochs)
    assert first != second, "another share in every epoch"


@pytest.mark.parametrize("shares", [(0.001, 0.999), (0.999, 0.001)])
def test_a_share_of_less_than_one_example_is_refused(shares):
    number = 1 + shares.index(0.001)
    with pytest.raises(ValueError, match=rf"objective {number} .* share of 0\.001, none of its 300"):
        MixedSource([Numbers(300, 0), Numbers(300, 0)], shares, seed=5).epoch(0)


def test_evaluation_measures_every_objective_on_everything():
    examples = MixedSource([Numbers(30, 0), Numbers(20, 1)], SHARES, seed=5, whole=True).epoch(0)
    assert Counter(examples.components) == {0: 30, 1: 20}


def test_every_step_has_the_mixture_of_the_epoch(steps):
    data = steps()
    examples, planned = data.plan(0)
    share = examples.lengths[examples.components == 0].sum() / examples.lengths.sum()
    for numbers in planned:
        own = examples.lengths[numbers][examples.components[numbers] == 0].sum()
        assert abs(own - share * examples.lengths[numbers].sum()) <= 9, "one example at most"


def test_long_examples_leave_no_step_without_an_objective():
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.lognormal(5, 0.9, 2000).astype(int) + 2, 512)
    components = (np.arange(2000) >= 400).astype(int)
    order = interleave(rng.permutation(2000), lengths, components)
    ends = np.cumsum(lengths[order])
    alike = np.split(order, np.searchsorted(ends, np.arange(2048, ends[-1], 2048)))
    assert fewest_examples(alike, components) == 0, "what interleaving alone would do"
    steps = plan_steps(lengths, 2048, np.random.default_rng(1), components)
    assert fewest_examples(steps, components) > 0
    assert sorted(np.concatenate(steps)) == list(range(2000))
    tokens = np.array([lengths[step].sum() for step in steps])
    assert tokens.max() <= 2048
    assert tokens.mean() > 0.6 * 2048


def test_interleaving_keeps_the_order_of_each_component():
    lengths, components = np.ones(12, dtype=int), np.array([0] * 4 + [1] * 8)
    order = np.random.default_rng(0).permutation(12)
    mixed = interleave(order, lengths, components)
    assert components[mixed].reshape(4, 3).sum(axis=1).tolist() == [2, 2, 2, 2]
    for component in (0, 1):
        assert [i for i in mixed if components[i] == component] == [
            i for i in order if components[i] == component
        ]


def test_the_loss_is_the_sum_of_the_shares_of_each_objectives_mean(steps):
    data, model = steps(), nn.Embedding(100, 1)
    objective = data.objective
    step = data[0, 1]
    metrics = accumulate_gradients(model, objective, step, Accelerator(cpu=True))
    expected = 0.0
    for component, share, weight, term in ((0, 0.25, 1.0, "a"), (1, 0.75, 2.0, "b")):
        parts = [batch for batch in step.micro_batches(CPU) if batch[COMPONENT] == component]
        assert len(parts) > component, "micro-batches of the larger objective"
        total = sum((model.weight[b["input_ids"]][..., 0] * b["labels"]).sum() for b in parts)
        mean = total / sum(b["labels"].sum() for b in parts)
        torch.testing.assert_close(metrics[term], mean.detach())
        expected = expected + share * weight * mean
    torch.testing.assert_close(metrics["loss"], expected.detach())
    (gradient,) = torch.autograd.grad(expected, [model.weight])
    torch.testing.assert_close(model.weight.grad, gradient)


def test_processes_share_every_objective(steps):
    whole = steps()[0, 2]
    halves = [steps(num_processes=2, process_index=index)[0, 2] for index in (0, 1)]

    def sequences(*found):
        return sorted(
            (batch[COMPONENT], *batch["input_ids"][0, first:last].tolist())
            for step in found
            for batch in step.micro_batches(CPU)
            for first, last in zip(batch["cu_seq_lens_k"][:-1], batch["cu_seq_lens_k"][1:], strict=True)
        )

    assert sequences(*halves) == sequences(whole)
    assert {term: sum(half.targets[term] for half in halves) for term in ("a", "b")} == whole.targets


def test_an_objective_that_changes_is_told_how_far_the_run_is(steps):
    data = steps(num_steps=20)
    taken = list(islice(endless_steps(data, (0, 0)), 20))
    rates = []
    for step in taken:
        tokens = sum(b["labels"].numel() for b in step.micro_batches(CPU) if b[COMPONENT] == 0)
        rates.append(step.targets["a"] / tokens)
    assert np.mean(rates[:5]) > np.mean(rates[-5:]) + 0.1
    late = next(endless_steps(steps(num_steps=20), taken[13].cursor))
    assert late.targets == taken[13].targets, "and so is one that resumes"


def test_terms_of_two_objectives_have_different_names(steps):
    objective = MixedObjective([Sum("a"), Sum("a", weight=3.0)], SHARES)
    assert objective.weights == {"a": 0.25, "a_2": 2.25}
    batch = Sum("a").collate([{"input_ids": np.arange(3), "index": 0}], 0)
    for component, term in ((0, "a"), (1, "a_2")):
        assert objective.targets(batch | {COMPONENT: component}) == {term: 3}


def test_every_step_has_an_example_of_every_objective_for_every_process(steps):
    with pytest.raises(ValueError, match="examples of one of the objectives for 9 processes"):
        steps(num_processes=9).plan(0)
