"""Micro-batches as CUDA graphs, whose replays are imitated: what they copy, add up, and are compared with."""

import re
import warnings
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tercet.finetune.tasks.objectives import SingleLabelObjective
from tercet.pretraining.objectives.causal_language_modeling import CausalLanguageModeling
from tercet.pretraining.objectives.translation import DecoderReading, ScheduledSamplingRecipe, Translation
from tercet.training.devices import compiling, recording
from tercet.training.devices.recording import MOST, WARM_UPS, Recorder
from tercet.training.mixture import MixedObjective

NUMBER = WARM_UPS + 4
"""Micro-batches of a size."""


class Graph:
    """Computes again what was captured, into the same memory; capturing itself leaves gradients alone."""

    def __init__(self, compute, recorder, spoil):
        self.compute, self.spoil, self.replays = compute, spoil, 0
        kept = [
            (weight, weight.grad, weight.grad.clone()) for weight in recorder.parameters if has_grad(weight)
        ]
        self.metrics = compute()
        for weight, gradient, values in kept:
            assert weight.grad is gradient, "a graph adds up gradients where they lie"
            gradient.copy_(values)

    def replay(self):
        self.replays += 1
        for name, value in self.compute().items():
            self.metrics[name].copy_(value)
        self.spoil()


class Model(nn.Module):
    """Two layers, one of which learns from long batches alone, and one that never does."""

    def __init__(self):
        super().__init__()
        self.short, self.long, self.unused = (nn.Linear(3, 3) for _ in range(3))

    def compute(self, batch, factors):
        """Add gradients of the batch's numbers, scaled."""
        layers = [self.short, self.long] if len(batch["numbers"]) > 4 else [self.short]
        loss = sum(layer(batch["numbers"]).square().sum() for layer in layers) * factors["loss"]
        loss.backward()
        return {"loss": loss.detach()}


def has_grad(weight):
    return weight.grad is not None


def draw(length=4):
    """Draw a micro-batch, which holds a number of the host and one for each example."""
    return {"numbers": torch.randn(length, 3), "max_length": 7, "index": torch.randint(99, (2,))}


@pytest.fixture
def graphs(monkeypatch):
    """Imitate capturing; give the graphs that were captured, which spoil gradients if told."""
    made = []

    def capture(compute, recorder):
        made.append(Graph(compute, recorder, made.spoil))
        return made[-1], made[-1].metrics

    class Made(list):
        spoil = staticmethod(lambda: None)

    made = Made()
    monkeypatch.setattr(recording, "capture", capture)
    return made


@pytest.fixture
def pair():
    """Make two equal models, and a recorder of the first."""
    models = Model(), Model()
    models[1].load_state_dict(models[0].state_dict())
    return *models, Recorder(models[0])


def require_equal(recorder, model, expected, batch, factor):
    """Let both models learn from a batch, on top of what they have; compare metrics and all gradients."""
    found = recorder.compute(batch, {"loss": factor}, model.compute)
    torch.testing.assert_close(found, expected.compute(batch, {"loss": factor}))
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        assert has_grad(ours) == has_grad(theirs)
        if has_grad(ours):
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_replays_learn_what_micro_batches_teach_in_steps_of_any_sizes(graphs, pair):
    """Gradients begin with nothing or zero, or go on; sizes alternate."""
    model, expected, recorder = pair
    for number in range(3 * NUMBER):
        for length in (4, 9) if number % 3 else (9, 4, 4):
            require_equal(recorder, model, expected, draw(length), 1 / (number + 1))
        for each in (model, expected):
            each.zero_grad(set_to_none=number % 2 == 0)
    assert [graph.replays > NUMBER for graph in graphs] == [True, True]


def test_the_recorded_loss_is_read_before_the_next_replay(graphs, pair):
    """Its memory is the graph's."""
    model, _, recorder = pair
    found = [recorder.compute(draw(), {"loss": 1.0}, model.compute) for _ in range(WARM_UPS + 2)]
    first, second = found[-2:]
    assert first["loss"] is second["loss"]


def test_a_loss_that_is_no_number_is_not_recorded_but_the_next_one(graphs, pair):
    model, expected, recorder = pair
    for factor in (*[1.0] * WARM_UPS, float("nan"), 1.0):
        found = recorder.compute(draw(), {"loss": factor}, model.compute)
        assert found["loss"].isfinite() == (factor == 1.0)
        assert all(
            weight.grad.isfinite().all() == (factor == 1.0) for weight in filter(has_grad, model.parameters())
        )
        model.zero_grad()
    assert [graph.replays for graph in graphs] == [1]
    require_equal(recorder, model, expected, draw(), 1.0)


def test_it_is_recorded_with_the_numbers_of_an_earlier_one(graphs, pair):
    """So that a replay that copies nothing differs."""
    model, _, recorder = pair
    batches = [draw() for _ in range(WARM_UPS + 1)]
    seen = []

    def compute(batch, factors):
        seen.append(batch["numbers"].clone())
        return model.compute(batch, factors)

    for batch in batches:
        recorder.compute(batch, {"loss": 1.0}, compute)
    expected, captured, replayed = seen[-3:]
    torch.testing.assert_close(captured, batches[-2]["numbers"])
    torch.testing.assert_close((expected, replayed), (batches[-1]["numbers"],) * 2)


def test_a_micro_batch_without_gradients_is_not_recorded_but_the_next_one(graphs, pair):
    model, expected, recorder = pair
    for factor in (*[1.0] * WARM_UPS, 0.0, 1.0):
        require_equal(recorder, model, expected, draw(), factor)
    assert [graph.replays for graph in graphs] == [1]


def test_another_number_of_the_host_is_another_size(graphs, pair):
    model, expected, recorder = pair
    for number in range(2 * NUMBER):
        require_equal(recorder, model, expected, draw() | {"max_length": 7 + number % 2}, 1.0)
    assert len(graphs) == 2


def test_weights_that_moved_are_recorded_anew(graphs, pair):
    model, expected, recorder = pair
    for number in range(2 * NUMBER):
        if number == NUMBER:
            model.short.weight.data = model.short.weight.data.clone()
        require_equal(recorder, model, expected, draw(), 1.0)
    assert len(graphs) == 2


def test_so_many_sizes_are_recorded(graphs, pair):
    model, expected, recorder = pair
    for length in range(1, MOST + 4):
        for _ in range(NUMBER):
            require_equal(recorder, model, expected, draw(length), 1.0)
    assert len(graphs) == MOST


@pytest.mark.parametrize("fault", ["other gradients", "no number", "no graph", "a wait"])
def test_a_recording_that_fails_or_differs_is_given_up_and_nothing_is_lost(graphs, pair, fault, monkeypatch):
    """A line says so, once."""
    model, expected, recorder = pair
    if fault == "a wait":
        message = "something waits for the GPU"
        monkeypatch.setattr(recording, "noting_waits", waiting(message))
    elif fault == "no graph":
        message = "operation not permitted when stream is capturing"
        monkeypatch.setattr(recording, "capture", failing(message))
    else:
        message = "they have other losses or gradients"
        factor = 1.1 if fault == "other gradients" else float("nan")
        graphs.spoil = lambda: model.short.weight.grad.mul_(factor)
    for _ in range(WARM_UPS):
        require_equal(recorder, model, expected, draw(), 1.0)
    with pytest.warns(UserWarning, match=re.escape(message)):
        require_equal(recorder, model, expected, draw(), 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for length in (4, 9) * NUMBER:
            require_equal(recorder, model, expected, draw(length), 1.0)
    assert len(graphs) == (fault not in ("no graph", "a wait"))
    assert not recorder.gradients, "what is not used is not kept"


def waiting(message):
    """Return what notes that a micro-batch waits."""

    @contextmanager
    def noting_waits(device):
        yield [message]

    return noting_waits


def failing(message):
    """Return what cannot capture."""

    def capture(compute, recorder):
        raise RuntimeError(message)

    return capture


def test_a_fault_of_the_micro_batch_itself_is_raised(graphs, pair):
    """It is no matter of recording."""
    model, _, recorder = pair
    for _ in range(WARM_UPS):
        recorder.compute(draw(), {"loss": 1.0}, model.compute)

    def broken(batch, factors):
        raise ValueError("no such token")

    with pytest.raises(ValueError, match="no such token"):
        recorder.compute(draw(), {"loss": 1.0}, broken)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        ({"num_processes": 2}, "several processes"),
        ({"scaler": object()}, "float16"),
        ({"can_be_recorded": False}, "an objective that asks the host"),
        ({"gradient_checkpointing": True}, "gradient checkpointing"),
        ({"kernel": "operator"}, "attention by operator"),
        ({"kernel": "flex"}, "attention by flex"),
    ],
)
def test_one_gpu_records_what_the_host_has_no_part_in(changes, expected):
    case = {"num_processes": 1, "scaler": None, "can_be_recorded": True}
    case, model = SimpleNamespace(**case | {"autocast": nullcontext, "kernel": "varlen"} | changes), Model()
    model.gradient_checkpointing = changes.get("gradient_checkpointing", False)
    model.can_be_compiled, model.attention_kernel = True, lambda is_traced: case.kernel
    assert compiling.reason_against_recording(model, case, case) == expected


def test_recordings_need_objectives_that_draw_nothing_on_the_host():
    """A decoder that reads its own predictions asks the device where."""
    plain = CausalLanguageModeling()
    sampling = Translation(1, reading=DecoderReading(ScheduledSamplingRecipe()))
    assert plain.can_be_recorded
    assert Translation(1).can_be_recorded
    assert SingleLabelObjective().can_be_recorded
    assert not SingleLabelObjective(torch.ones(2)).can_be_recorded
    assert not sampling.can_be_recorded
    assert not MixedObjective([plain, sampling], [0.5, 0.5]).can_be_recorded
    assert MixedObjective([plain, plain], [0.5, 0.5]).can_be_recorded
