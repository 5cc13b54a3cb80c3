"""Compiled layers and losses over many ragged steps: graphs are made in the first, and none after it."""

import pytest
import torch
from torch._dynamo.utils import counters

from tercet.modeling.attention import kernels
from tercet.pretraining.objectives.recipes import ObjectiveContext
from tercet.training.devices import compiling
from tercet.training.devices.compiling import CompiledBlocks

from ..distill import test_fixed_sizes as tasks
from ..fixed_sizes import CPU, learned, taken
from ..modeling.conftest import NOT_PARALLEL, VARIANTS
from ..pretraining.objectives.conftest import read, tokenizer  # noqa: F401
from ..pretraining.objectives.test_recipes import LENGTH, make_source, make_steps
from ..pretraining.objectives.test_static_shapes import PREDICTING, small_model

MEMBERS = {
    "encoder": "masked_language_modeling",
    "decoder": "causal_language_modeling",
    "seq2seq": "translation",
}
"""What variants of a member learn."""

COMBINED = ("bert", "t5", "sliding_alibi", "sliding_neox", "primer", "gated")
"""Variants that have each place of norms, bias of scores, window, gate and sharing of keys between them."""

CASES = [
    *(("objective", kind) for kind in PREDICTING),
    *(("encoder", name) for name in VARIANTS if name not in ("modern", "strided", "big_bird")),
    *((member, name) for member in ("decoder", "seq2seq") for name in COMBINED),
    *(("task", name) for name in tasks.TASKS),
    *(("taught task", name) for name in tasks.KINDS),
    *(("taught", kind) for kind in tasks.GENERAL),
]
"""What learns: an objective, a variant of a member, a task, or one of them from a teacher."""

QUICK = (("objective", "hybrid_language_modeling"), ("task", "spans"))
"""Those of the default suite, for few steps."""

LONG = [("objective", kind) for kind in (*MEMBERS.values(), "hybrid_language_modeling")]
"""One of each member and a mixture, for many steps."""


def make(way: str, name: str, tokenizer, **changes):  # noqa: F811
    """Make steps of one size, and what learns from them."""
    if "task" in way:
        source, (objective, model) = tasks.draw(name), tasks.made(name, way == "taught task")
        return tasks.make_steps(source, objective, has_fixed_sizes=True), objective, model
    kind = MEMBERS.get(way, name)
    objective = read(kind).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    if way in MEMBERS:
        changes |= VARIANTS[name] | (NOT_PARALLEL.get(name, {}) if way == "seq2seq" else {})
    model = small_model(kind, len(tokenizer), **changes)
    if way == "taught":
        objective, model = tasks.taught(objective, model)
    return make_steps(make_source(kind, tokenizer), objective, has_fixed_sizes=True), objective, model


@pytest.mark.parametrize(
    ("way", "name", "num_steps", "backend"),
    [
        *((*case, 20, "aot_eager") for case in QUICK),
        *(
            pytest.param(*case, 200 if case in LONG else 40, "aot_eager", marks=pytest.mark.slow)
            for case in CASES
        ),
        *(
            pytest.param("objective", kind, 40, "inductor", marks=pytest.mark.slow)
            for kind in MEMBERS.values()
        ),
    ],
)
def test_no_step_after_the_first_is_compiled(way, name, num_steps, backend, tokenizer, monkeypatch):  # noqa: F811
    """Nor does a graph break; of the first, losses and gradients are those of layers as they are written."""
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(compiling, "BACKEND", backend)
    steps, objective, model = make(way, name, tokenizer)
    expected = learned(model, objective, [steps])
    graphs = CompiledBlocks(model, has_fixed_sizes=True)
    with graphs.in_use():
        torch.testing.assert_close(learned(model, objective, [steps]), expected, **tasks.NEAR)
        made = counters["stats"]["unique_graphs"]
        assert made > 0
        for step in taken(steps, num_steps):
            for batch in step.micro_batches(CPU):
                sum(objective.losses(model, batch).values()).backward()
    assert counters["stats"]["unique_graphs"] == made
    assert not counters["graph_break"]


@pytest.mark.parametrize(
    "kind",
    [
        MEMBERS["encoder"],
        *(pytest.param(MEMBERS[name], marks=pytest.mark.slow) for name in ("decoder", "seq2seq")),
    ],
)
def test_graphs_drop_the_weights_that_layers_as_written_drop(kind, tokenizer, monkeypatch):  # noqa: F811
    """By one seed; by another, others."""
    torch._dynamo.reset()
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    steps, objective, model = make("objective", kind, tokenizer, attention_dropout=0.3)
    graphs = CompiledBlocks(model, has_fixed_sizes=True)

    def learned_by(seed: int):
        torch.manual_seed(seed)
        return learned(model, objective, [steps])

    with monkeypatch.context() as patch:
        patch.setattr(kernels, "is_tracing", lambda: True)  # the kernel that graphs have
        expected = learned_by(3)
    with graphs.in_use():
        torch.testing.assert_close(learned_by(3), expected, **tasks.NEAR)
        with pytest.raises(AssertionError):
            torch.testing.assert_close(learned_by(4), expected, **tasks.NEAR)
