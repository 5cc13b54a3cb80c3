"""A law: whatever a recipe of the engine says otherwise on resuming takes effect, or is refused."""

import dataclasses
import shutil
from types import SimpleNamespace

import pytest
import torch

from tercet.training import learning, loop, stages
from tercet.training.checkpoints import checkpoint_writer
from tercet.training.checkpoints.checkpoint import CHECKPOINTS
from tercet.training.devices import compiling, cpu
from tercet.training.devices.precision import build_accelerator
from tercet.training.evaluation import HeldOut
from tercet.training.recipe import OptimizerRecipe, ScheduleRecipe, StageRecipe, TrainingRecipe
from tercet.training.tracking import LOG, read_log

from ..saved_weights import weights_in

SAVED = 3
"""The step from which runs are resumed, of six."""

REFUSED = {
    "stages": (StageRecipe(1, tokens_per_step=100),),
    "tokens_per_step": 150,
    "seed": 1,
    "ema_decay": 0.9,
    "optimizer.kind": "muon",
    "optimizer.layer_decay": 0.5,
}
"""What cannot be changed, and another value of it."""

AFTERWARDS = {"save_code", "revisions", "push_revisions", "timeout"}
"""What is done with models that are written, and how long processes wait for each other."""

MEMORY = {"gradient_checkpointing", "cpu_offload"}
"""What changes nothing that is learned, as `test_layouts` and `test_gradient_checkpointing` show."""

WEIGHTS = ("weights", {})
MUON = ("weights", {"optimizer.kind": "muon"})
NOAM = ("weights", {"schedule.kind": "noam"})
FALLING = ("weights", {"schedule.kind": "warmup_stable_decay"})

TAKE_EFFECT = {
    "steps": (8, *WEIGHTS),
    "tokens_per_micro_batch": (200, *WEIGHTS),
    "optimizer.learning_rate": (1e-3, *WEIGHTS),
    "optimizer.matrix_learning_rate": (1e-3, *MUON),
    "optimizer.neuron_beta": (0.5, "weights", {"optimizer.kind": "normuon"}),
    "optimizer.betas": ((0.8, 0.9), *WEIGHTS),
    "optimizer.epsilon": (1e-3, *WEIGHTS),
    "optimizer.weight_decay": (0.5, *WEIGHTS),
    "schedule.kind": ("cosine", *WEIGHTS),
    "schedule.warmup_steps": (5, *WEIGHTS),
    "schedule.warmup_ratio": (0.9, "weights", {"schedule.warmup_steps": None}),
    "schedule.final_ratio": (0.9, *WEIGHTS),
    "schedule.decay_ratio": (0.9, *FALLING),
    "schedule.decay_shape": ("linear", "weights", FALLING[1] | {"schedule.decay_ratio": 0.9}),
    "schedule.factor": (3.0, *NOAM),
    "max_grad_norm": (0.01, *WEIGHTS),
    "precision": ("bf16", "precision", {}),
    "compile": (True, "is_compiled", {}),
    "cuda_graphs": (False, "records_graphs", {}),
    "evaluate_every": (2, "evaluations", {}),
    "patience": (2, "evaluations", {"evaluate_every": 1}),
    "checkpoint_every": (2, "checkpoints", {"keep_checkpoints": 9}),
    "keep_checkpoints": (3, "checkpoints", {"checkpoint_every": 1}),
    "average_checkpoints": (3, "files", {"checkpoint_every": 1, "keep_checkpoints": 3}),
    "final_weights": ("last", "judged", {"ema_decay": 0.9}),
    "log_every": (1, "records", {}),
    "trackers": (("tensorboard",), "trackers", {}),
    "measure_utilization": (True, "utilizations", {"peak_flops": 1e6}),
    "peak_flops": (1e9, "utilizations", {"measure_utilization": True, "peak_flops": 1e18}),
    "num_workers": (1, "num_workers", {}),
    "max_skipped_steps": (2, "max_skipped_steps", {}),
    "retain_heap": (True, "retains_heap", {}),
    "async_checkpoints": (False, "saves_in_background", {}),
}
"""What takes effect: another value, where that shows, and what the run says besides."""


def leaves(recipe, above=""):
    """Name the fields of a recipe and of those in it, with dots."""
    for field in dataclasses.fields(recipe):
        value = getattr(recipe, field.name)
        if dataclasses.is_dataclass(value):
            yield from leaves(value, f"{above}{field.name}.")
        else:
            yield above + field.name


def changed(recipe, values):
    """Give a recipe other values, by dotted names."""
    for name, value in values.items():
        first, _, rest = name.partition(".")
        part = changed(getattr(recipe, first), {rest: value}) if rest else value
        recipe = dataclasses.replace(recipe, **{first: part})
    return recipe


@pytest.fixture
def run(toys, tmp_path, monkeypatch):
    """Train from the beginning, or resume a copy of a run that has; give what can be seen of it."""

    def run(name, recipe, *, begun=None):
        torch.manual_seed(0)
        folder = tmp_path / name
        if begun is not None:
            shutil.copytree(tmp_path / begun, folder)
        seen = SimpleNamespace(retains_heap=False, num_workers=None, max_skipped_steps=None)

        def prepare(model, accelerator, **offload):
            seen.precision = accelerator.mixed_precision
            return model

        def deliver(*args, num_workers, **options):
            seen.num_workers = num_workers
            return endless(*args, num_workers=0, **options)

        def write(*, in_background):
            seen.saves_in_background = in_background
            return writer(in_background=in_background)

        def count(limit, *args):
            seen.max_skipped_steps = limit
            return counter(limit, *args)

        def compile_blocks(wanted, *_, records):
            seen.is_compiled, seen.records_graphs = wanted, records

        endless, counter, writer = (
            stages.endless_steps,
            loop.NonFiniteSteps,
            checkpoint_writer.CheckpointWriter,
        )
        with monkeypatch.context() as patch:
            patch.setattr(cpu, "retain_heap", lambda: setattr(seen, "retains_heap", True))
            patch.setattr(checkpoint_writer, "CheckpointWriter", write)
            patch.setattr(learning, "prepare_model", prepare)
            patch.setattr(compiling, "compiled_blocks", compile_blocks)
            patch.setattr(stages.TrainingData, "has_fixed_sizes", True)  # as on a GPU
            patch.setattr(stages, "endless_steps", deliver)
            patch.setattr(loop, "NonFiniteSteps", count)
            accelerator = build_accelerator(recipe, folder)
            parts = toys.with_blocks(0.1), toys.Objective(), toys.Source(), recipe, folder, accelerator
            held_out = HeldOut(measure=lambda model: {"loss": 1.0})
            outcome = toys.fit(*parts, held_out=held_out, resume=begun is not None)
        seen.weights = {name: each.tolist() for name, each in weights_in(outcome.checkpoint).items()}
        seen.files = sorted(path.name for path in outcome.checkpoint.iterdir())
        seen.judged = recipe.judged_kind
        records = read_log(folder / LOG)
        seen.evaluations = [record["step"] for record in records if "evaluation/loss" in record]
        seen.records = [record["step"] for record in records if "loss" in record]
        seen.utilizations = [r.get("utilization", 0) > 1e-4 for r in records if "loss" in r]
        seen.checkpoints = sorted(path.name for path in (folder / CHECKPOINTS).iterdir())
        seen.trackers = [tracker.name for tracker in accelerator.trackers]
        return seen

    return run


@pytest.fixture
def begin(run, toys):
    """Take the first steps of a recipe with some values, and return it."""

    def begin(values):
        schedule = ScheduleRecipe(warmup_steps=2)
        recipe = changed(toys.recipe(steps=6, schedule=schedule, optimizer=OptimizerRecipe()), values)
        run("begun", dataclasses.replace(recipe, steps=SAVED))
        return recipe

    return begin


def test_every_field_takes_effect_or_is_refused():
    """A new field must be entered above, and then does what the entry says."""
    assert {*TAKE_EFFECT, *REFUSED} == {*leaves(TrainingRecipe(steps=1))} - AFTERWARDS - MEMORY
    assert not TAKE_EFFECT.keys() & REFUSED.keys()


@pytest.mark.parametrize("name", TAKE_EFFECT)
def test_what_is_changed_on_resuming_takes_effect(name, run, begin):
    value, shown_in, besides = TAKE_EFFECT[name]
    recipe = begin(besides)
    same, other = (
        run("same", recipe, begun="begun"),
        run("other", changed(recipe, {name: value}), begun="begun"),
    )
    assert getattr(same, shown_in) != getattr(other, shown_in)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_changed_on_resuming_is_refused(name, run, begin):
    recipe = changed(begin({}), {name: REFUSED[name]})
    remedy = "(resume with that|change later)"
    with pytest.raises(ValueError, match=rf"training.{name} = .* (was|were) made with .*: {remedy}"):
        run("other", recipe, begun="begun")


def test_fewer_steps_than_are_taken_are_refused(run, begin):
    recipe = changed(begin({}), {"steps": 2})
    with pytest.raises(
        ValueError, match=r"steps = 2, but .* has taken 3 steps: resume with at least as many"
    ):
        run("other", recipe, begun="begun")


@pytest.mark.parametrize("kind", ["adamw", "adam", "muon", "normuon"])
def test_optimizers_go_on_with_the_constants_of_the_recipe(kind, run, begin, monkeypatch):
    """As those of a run that began with them, though their moments are of the run that was resumed."""
    constants = {"optimizer.learning_rate": 1e-2, "optimizer.betas": (0.5, 0.6), "optimizer.epsilon": 1e-4}
    if kind != "adam":
        constants["optimizer.weight_decay"] = 0.3
    groups, taken = {}, checkpoint_writer.take_snapshot

    def take(folder, state, **options):
        groups[folder.parent.name] = [
            {key: value for key, value in group.items() if key != "params"}
            for group in state.optimizer.param_groups
        ]
        return taken(folder, state, **options)

    monkeypatch.setattr(checkpoint_writer, "take_snapshot", take)
    recipe = changed(begin({"optimizer.kind": kind}), constants)
    run("resumed", recipe, begun="begun")
    run("straight", recipe)
    assert groups["resumed"] == groups["straight"]
    assert groups["begun"] != groups["resumed"]
