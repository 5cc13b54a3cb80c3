"""Layouts of four processes: each learns what one process learns, and one goes on from what each has left."""

import json
import re

import pytest

from tercet.training.devices.precision import build_accelerator
from tercet.training.devices.sharding import count_replicas

from ..launches import VARIABLES, replicated
from .layout_program import train
from .test_sharding import assert_near, require_same, state_at

TRAIN = "from tests.training.layout_program import main; main()"
LAYOUTS = VARIABLES | {"replicas": VARIABLES["pieces"] | replicated(2, 2)}
OPTIMIZERS = {kind: {"kind": kind, "learning_rate": 5e-4} for kind in ("adamw", "normuon")}
"""AdamW enlarges rounding where gradients are nearly zero: small steps keep it below a real difference."""
OFFLOADED = {"cpu_offload": True}


@pytest.fixture
def run(fork_server, tmp_path):
    """Carry out runs in four processes: of each its folder, its layout, and what its recipe says."""

    def run(*runs):
        described = [
            {"folder": str(tmp_path / name), "variables": LAYOUTS[way], "dropout": 0.0} | training
            for name, way, training in runs
        ]
        started = fork_server.start(TRAIN, json.dumps(described), processes=4)
        status, said = fork_server.wait(started), started.output.read_text()
        assert status == 0, said
        return said

    return run


def learn_as_one(run, folder, *cases, half=2):
    """Compare each layout with one process in the middle and at the end of a run, whose second half is its.

    A case is a layout, an optimizer, and more of a recipe.
    """
    for kind in {kind for _, kind, _ in cases}:
        train(str(folder / kind), {}, 0.0, steps=2 * half, checkpoint_every=half, optimizer=OPTIMIZERS[kind])
    runs = [(way, {"steps": half, "optimizer": OPTIMIZERS[kind]} | more) for way, kind, more in cases]
    said = run(*((f"{number}", *case) for number, case in enumerate(runs)))
    for name, (_, kind, _) in ((f"{number}", case) for number, case in enumerate(cases)):
        assert_near(state_at(folder / name, half), state_at(folder / kind, half))
        train(str(folder / name), {}, 0.0, steps=2 * half, optimizer=OPTIMIZERS[kind])
        assert_near(state_at(folder / name, 2 * half), state_at(folder / kind, 2 * half))
    return said


def test_replicas_of_a_model_in_pieces_learn_as_one_process(run, tmp_path):
    """Replicas sum the gradients of three layers and of what is outside of them once a step, not twice."""
    said = learn_as_one(run, tmp_path, ("replicas", "normuon", {}), half=1)
    assert re.findall(r"sums over replicas: (\d+)", said) == 4 * [str(3 + 1)]


@pytest.mark.slow
def test_layouts_learn_as_one_process(run, tmp_path):
    cases = [(way, kind, {}) for way in LAYOUTS for kind in OPTIMIZERS]
    learn_as_one(run, tmp_path, *cases, ("pieces", "normuon", OFFLOADED), ("replicas", "adamw", OFFLOADED))


@pytest.mark.slow
def test_layers_that_are_computed_again_change_nothing_in_any_layout(run, tmp_path):
    """To the last bit, with dropout."""
    options = {False: {"dropout": 0.2, "steps": 2}}
    options[True] = options[False] | {"gradient_checkpointing": True}
    run(*((f"{way}-{again}", way, options[again]) for way in LAYOUTS for again in options))
    for way in LAYOUTS:
        expected, found = (state_at(tmp_path / f"{way}-{again}", 2) for again in options)
        require_same(found, expected)
    assert {path.name for path in tmp_path.iterdir()} >= {f"{way}-True" for way in LAYOUTS}


FSDP = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}


@pytest.mark.parametrize(
    ("processes", "variables", "message"),
    [
        (4, FSDP | replicated(2, 3), r"dp_replicate_size 2 x dp_shard_size 3 are 6 processes, .* are 4"),
        (4, FSDP | replicated(4, 1), r"nothing is shared out \(dp_shard_size is 1\): choose at least 2"),
        (4, replicated(2, 2), "nothing is shared out .* with --use_fsdp --fsdp_version 2"),
        (1, FSDP | replicated(2, 2), "are 4 processes, but there are 1"),
        (4, FSDP | replicated(2, 0), "PARALLELISM_CONFIG_DP_SHARD_SIZE is '0': choose a number"),
        *(
            (4, FSDP | replicated(2, 2) | {f"PARALLELISM_CONFIG_{kind}_SIZE": "2"}, f"no {name} parallelism")
            for kind, name in (("TP", "tensor"), ("CP", "context"), ("SP", "sequence"))
        ),
    ],
)
def test_layouts_that_there_are_not_are_refused(processes, variables, message, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        count_replicas(processes)


def test_sizes_of_groups_are_those_of_the_launcher(monkeypatch):
    assert count_replicas(6) == 1
    for name, value in (FSDP | replicated(3, 2)).items():
        monkeypatch.setenv(name, value)
    assert count_replicas(6) == 3


def test_one_process_keeps_no_part_of_its_weights_on_the_cpu(toys, tmp_path):
    with pytest.raises(
        ValueError, match="cpu_offload = true, but every process holds the whole model: shard"
    ):
        build_accelerator(toys.recipe(cpu_offload=True), tmp_path)
