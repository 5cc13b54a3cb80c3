"""What an optimizer's part of a step asks of a GPU: few operators, and nothing that is waited for."""

from contextlib import suppress
from itertools import repeat
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tercet.data.steps.workers import DataCursor
from tercet.training import loop, skipping
from tercet.training.loop import Training, train
from tercet.training.optimizers.averaging import WeightAverage
from tercet.training.optimizers.optimizers import build_optimizer
from tercet.training.optimizers.schedules import build_schedule
from tercet.training.recipe import OptimizerRecipe, ScheduleRecipe
from tercet.training.tracking import Tracker

OPERATORS = {"adam": 36, "adamw": 39, "muon": 126, "normuon": 171}
"""Operators of a step after its gradients, but for views, of matrices of three shapes; they may only fall."""


class Operators(TorchDispatchMode):
    """Collects the operators that compute, and those that bring numbers to the host."""

    def __init__(self):
        super().__init__()
        self.computing: list[str] = []
        self.waiting: list[str] = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        """Look at an operator, and carry it out."""
        found = function(*arguments, **(options or {}))
        is_view = [part.alias_info and not part.alias_info.is_write for part in function._schema.returns]
        if function.namespace == "aten" and "view" not in str(function) and not any(is_view):
            self.computing.append(str(function))
        devices = [each.device.type for each in (*arguments, found) if isinstance(each, Tensor)]
        if "cuda" in devices and devices[-1] == "cpu":
            self.waiting.append(str(function))
        return found


def stacked(num_layers: int, device: str) -> nn.Module:
    """Make a model of layers, each of matrices of three shapes and a bias."""

    def parameters(*shapes: tuple[int, ...]) -> nn.ParameterList:
        return nn.ParameterList(nn.Parameter(torch.ones(shape, device=device)) for shape in shapes)

    model = nn.Module()
    model.outside = parameters((5, 8), (8,))
    layers = [parameters((8, 8), (16, 8), (8, 16), (8, 8), (8,)) for _ in range(num_layers)]
    model.layers = nn.ModuleList(layers)
    return model


@pytest.fixture
def take_steps(monkeypatch, tmp_path):
    """Take steps as runs do, with clipping, EMA and a log; give their operators."""

    def take_steps(kind: str, device: str, num_layers: int = 2, steps: int = 1) -> list[Operators]:
        model = stacked(num_layers, device)
        products = torch.float32 if device == "cpu" else torch.bfloat16
        optimizer = build_optimizer(model, OptimizerRecipe(kind), products=products)
        schedule = build_schedule(optimizer, ScheduleRecipe(), steps=100, width=8)
        accelerator, average = Accelerator(cpu=True), WeightAverage(model)
        monkeypatch.setattr(Accelerator, "device", torch.device(device))
        parts = accelerator.prepare_optimizer(optimizer), schedule, accelerator, steps + 1
        training = Training(model, SimpleNamespace(), *parts)
        tracker = Tracker(training, tmp_path, log_every=100)
        tracker.first_step -= 10  # later in a run: the first steps are timed, which waits for a GPU twice
        seen = [Operators()]

        def give_gradients(*_) -> dict[str, Tensor]:
            seen[-1].__exit__(None, None, None)
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter)
            metrics = {"loss": torch.zeros((), device=device)}
            seen.append(Operators())
            seen[-1].__enter__()
            return metrics

        def move_average(metrics: dict[str, Tensor]) -> None:
            average.add(0.5)

        monkeypatch.setattr(loop, "accumulate_gradients", give_gradients)
        data = SimpleNamespace(
            examples=1, tokens=1, targets={}, tokens_of={}, cursor=DataCursor(0, 0, 0), fingerprint=0
        )
        data.whole = lambda accelerator: data
        seen[-1].__enter__()
        try:
            with suppress(StopIteration):  # amid a run: the last step waits
                train(training, repeat(data, steps), [move_average, tracker.record_step])
        finally:
            seen[-1].__exit__(None, None, None)
        return seen[1:]

    return take_steps


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_step_takes_few_operators_whatever_the_number_of_layers(kind, take_steps):
    shallow, deep = (take_steps(kind, "cpu", num_layers, steps=3)[-1].computing for num_layers in (2, 4))
    assert deep == shallow
    assert len(shallow) <= OPERATORS[kind], "\n".join(shallow)


@pytest.mark.parametrize("kind", OPERATORS)
def test_no_step_waits_for_a_gpu_but_where_broken_ones_are_counted(kind, take_steps, monkeypatch):
    """A tensor of `FakeTensorMode` has a device and no numbers: what asks for one fails."""
    monkeypatch.setattr(skipping, "READ_EVERY_ELSEWHERE", 3)
    with FakeTensorMode():
        with Operators() as control:
            torch.ones((), device="cuda:0").cpu()
        assert control.waiting == ["aten._to_copy.default"]
        steps = take_steps(kind, "cuda:0", steps=2)
        assert [step.waiting for step in steps] == [[], []]
        # In a torch for CPUs alone, `int()` fails a little earlier than it would ask for the number.
        with pytest.raises(
            RuntimeError, match=r"_local_scalar_dense|not linked with support for cuda"
        ) as error:
            take_steps(kind, "cuda:0", steps=3)
        assert "require_fewer" in [entry.name for entry in error.traceback]
