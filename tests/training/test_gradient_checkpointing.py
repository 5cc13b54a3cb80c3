"""Layers that are computed again: the same gradients to the last bit, dropout too, from less memory."""

import pytest
import torch
from accelerate import Accelerator
from torch._dynamo.utils import counters

from tercet.pretraining.objectives.recipes import ObjectiveContext
from tercet.training.devices import compiling
from tercet.training.devices.compiling import CompiledBlocks
from tercet.training.devices.gradient_checkpointing import enable_gradient_checkpointing
from tercet.training.devices.sharding import computes_again

from ..distill.test_fixed_sizes import taught
from ..fixed_sizes import CPU, learned
from ..pretraining.objectives.conftest import read, tokenizer  # noqa: F401
from ..pretraining.objectives.test_recipes import LENGTH, make_source, make_steps
from ..pretraining.objectives.test_static_shapes import small_model
from ..tools.plan.counting import bytes_kept

KINDS = ("causal_language_modeling", "replaced_token_detection", "span_corruption")
"""Of a decoder, of two encoders that learn together, and of both stacks."""


def prepare(kind, tokenizer, is_taught=False, **changes):  # noqa: F811
    """Make an objective, a model with dropout, and steps."""
    objective = read(kind).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    model = small_model(kind, len(tokenizer), num_hidden_layers=3, **{"dropout": 0.2} | changes)
    objective, model = taught(objective, model) if is_taught else (objective, model)
    return objective, model, make_steps(make_source(kind, tokenizer), objective, has_fixed_sizes=True)


def measured(objective, model, steps):
    """Return losses and gradients of a step, and bytes kept of its first micro-batch."""
    batch = next(iter(steps[0, 0, 0].micro_batches(CPU)))
    torch.manual_seed(1)
    found = learned(model, objective, [steps])
    kept = bytes_kept(model, lambda: objective.losses(model, batch))
    return found, kept


@pytest.mark.parametrize(("kind", "is_taught"), [*((kind, False) for kind in KINDS), (KINDS[0], True)])
def test_layers_that_are_computed_again_learn_the_same_and_keep_less(kind, is_taught, tokenizer):  # noqa: F811
    objective, model, steps = prepare(kind, tokenizer, is_taught)
    expected, all_kept = measured(objective, model, steps)
    enable_gradient_checkpointing(model)
    found, kept = measured(objective, model, steps)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert (
        kept < (1 if is_taught else 0.45) * all_kept
    )  # losses of what a teacher says keep most by themselves


@pytest.mark.slow
def test_graphs_of_layers_compute_again(tokenizer, monkeypatch):  # noqa: F811
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    objective, model, steps = prepare(KINDS[0], tokenizer, dropout=0.0)
    expected, all_kept = measured(objective, model, steps)
    enable_gradient_checkpointing(model)
    with CompiledBlocks(model, has_fixed_sizes=True).in_use():
        found = learned(model, objective, [steps])
        batch = next(iter(steps[0, 0, 0].micro_batches(CPU)))
        assert bytes_kept(model, lambda: objective.losses(model, batch)) < 0.5 * all_kept
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert not counters["graph_break"]


def test_a_model_without_such_layers_is_refused(toys):
    with pytest.raises(ValueError, match="true, but ToyModel has no layers that can be computed again"):
        enable_gradient_checkpointing(toys.Model())


def test_a_launcher_asks_for_it_as_a_recipe_does(monkeypatch):
    accelerator = Accelerator(cpu=True)
    assert [computes_again(is_wanted, accelerator) for is_wanted in (False, True)] == [False, True]
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    for name, value in {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}.items():
        monkeypatch.setenv(name, value)
    assert not computes_again(False, accelerator)
    monkeypatch.setenv("FSDP_ACTIVATION_CHECKPOINTING", "true")
    assert computes_again(False, accelerator)
