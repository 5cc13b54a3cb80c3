"""Compiled layers and losses over many ragged steps: graphs are made in the first, and none after it."""

from itertools import chain, count, islice

import pytest
import torch
from torch._dynamo.utils import counters

from tercet.objectives.base_recipe import ObjectiveContext
from tercet.training import compiling
from tercet.training.compiling import CompiledBlocks

from .distill import test_fixed_sizes as tasks
from .fixed_sizes import CPU, learned
from .modeling.conftest import VARIANTS
from .objectives.conftest import tokenizer  # noqa: F401
from .objectives.test_recipes import LENGTH, make_source, make_steps, read
from .objectives.test_static_shapes import PREDICTING, small_model

CASES = [
    *(("objective", kind) for kind in PREDICTING),
    *(("variant", name) for name in VARIANTS if name not in ("modern", "strided", "big_bird")),
    *(("task", name) for name in tasks.TASKS),
    *(("taught task", name) for name in tasks.TAUGHT),
    *(("taught", kind) for kind in tasks.GENERAL),
]
"""What learns: an objective, an architecture, a task, or one of them from a teacher."""

QUICK = (("objective", "hybrid_language_modeling"), ("task", "spans"))
"""Those of the default suite, for few steps."""


def make(way: str, name: str, tokenizer):  # noqa: F811
    """Make steps of one size, and what learns from them."""
    if "task" in way:
        source, (objective, model) = tasks.draw(name), tasks.made(name, way == "taught task")
        return tasks.make_steps(source, objective, has_fixed_sizes=True), objective, model
    kind = name if way != "variant" else "masked_language_modeling"
    objective = read({"kind": kind}).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    model = small_model(kind, len(tokenizer), **(VARIANTS[name] if way == "variant" else {}))
    if way == "taught":
        objective, model = tasks.taught(objective, model)
    return make_steps(make_source(kind, tokenizer), objective, has_fixed_sizes=True), objective, model


@pytest.mark.parametrize(
    ("way", "name", "num_steps"),
    [
        *((*case, 20) for case in QUICK),
        *(pytest.param(*case, 40, marks=pytest.mark.slow) for case in CASES),
    ],
)
def test_no_step_after_the_first_is_compiled(way, name, num_steps, tokenizer, monkeypatch):  # noqa: F811
    """Nor does a graph break; of the first, losses and gradients are those of layers as they are written."""
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    steps, objective, model = make(way, name, tokenizer)
    expected = learned(model, objective, [steps])
    graphs = CompiledBlocks(model, has_fixed_sizes=True)
    with graphs.in_use():
        torch.testing.assert_close(learned(model, objective, [steps]), expected, **tasks.NEAR)
        made = counters["stats"]["unique_graphs"]
        assert made > 0
        places = chain.from_iterable(
            ((epoch, number) for number in range(len(steps.plan(epoch)[1]))) for epoch in count()
        )
        for epoch, number in islice(places, 1, num_steps):
            for batch in steps[epoch, number, 0].micro_batches(CPU):
                sum(objective.losses(model, batch).values()).backward()
    assert counters["stats"]["unique_graphs"] == made
    assert not counters["graph_break"]
