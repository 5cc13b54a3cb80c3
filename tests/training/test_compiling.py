"""Whether layers are compiled, and what a trial of them leaves behind."""

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from functorch.compile import make_boxed_func  # pyright: ignore[reportPrivateImportUsage]
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config

from tercet.training.devices import compiling
from tercet.training.devices.compiling import compiled_blocks

from ..distill import test_fixed_sizes as tasks


def forward(graph, inputs):
    assert not functorch_config.graphsafe_rng_functionalization, "dropout from generators no checkpoint holds"
    return make_boxed_func(graph.forward)


def failing(graph, inputs):
    def fail(*values):
        raise RuntimeError("no kernel")

    return make_boxed_func(fail)


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (forward, None),
        (failing, "goes on without compiled layers: no kernel"),
    ],
)
def test_layers_are_compiled_where_the_machine_can(backward, message, monkeypatch):
    """And if not, nothing of the trial is left in the model: no gradient that its first step would add to."""
    torch._dynamo.reset()
    monkeypatch.setattr(compiling, "BACKEND", aot_autograd(fw_compiler=forward, bw_compiler=backward))
    monkeypatch.setattr(compiling, "wants_graphs", lambda *_: True)
    objective, model = tasks.made("tags", False)
    steps = tasks.make_steps(tasks.draw("tags"), objective, has_fixed_sizes=True)
    data: Any = SimpleNamespace(halfway=steps[0, 0, 0])
    with pytest.warns(UserWarning, match=message) if message else warnings.catch_warnings():
        graphs = compiled_blocks("auto", model, objective, data, Accelerator(cpu=True))
    assert (graphs is None) == bool(message)
    assert graphs is None or (graphs.recorder, graphs.unrecorded) == (None, ""), "a CPU has no CUDA graphs"
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(layer.gradient_checkpointing for layer in compiling.layers_of(model))
    torch._dynamo.reset()


def test_a_layer_in_pieces_that_cannot_be_compiled_ends_the_run(monkeypatch):
    """Its hooks have not put the pieces back, and an optimizer would move some of the weights alone."""
    monkeypatch.setattr(compiling, "wants_graphs", lambda *_: True)
    monkeypatch.setattr(compiling, "is_sharded", lambda model: True)
    monkeypatch.setattr(compiling, "BACKEND", aot_autograd(fw_compiler=forward, bw_compiler=failing))
    objective, model = tasks.made("tags", False)
    steps = tasks.make_steps(tasks.draw("tags"), objective, has_fixed_sizes=True)
    data: Any = SimpleNamespace(halfway=steps[0, 0, 0])
    torch._dynamo.reset()
    with pytest.raises(
        ValueError, match=r"in pieces cannot be compiled \(no kernel\): set training.compile=false"
    ):
        compiled_blocks("auto", model, objective, data, Accelerator(cpu=True))
    torch._dynamo.reset()
