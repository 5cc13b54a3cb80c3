"""Several processes: they compute what one computes, and what leaves them is whole."""

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from torch import nn

from tercet.training.checkpoints.checkpoint import CHECKPOINTS
from tercet.training.devices.sharding import each_once, load_whole_weights, prepare_model, whole_weights
from tercet.training.tracking import LOG, read_log

from ..logs import BY_THE_CLOCK, timeless
from ..saved_weights import moments_in, require_same, weights_in

STEADY = ("schedule.kind=constant", "checkpoint_every=3", "keep_checkpoints=9", "log_every=1")


@pytest.fixture
def folder(toys, tmp_path):
    return lambda name: toys.prepare(tmp_path / name, toys.recipe())


def state_at(folder, step):
    """All numbers of a checkpoint, by name."""
    checkpoint = folder / CHECKPOINTS / f"step-{step:08d}"
    return weights_in(checkpoint) | moments_in(checkpoint)


def assert_near(found, expected):
    """Compare the tensors of two checkpoints: within 1e-6 of their norm; of squares, within twice as much."""
    assert found.keys() == expected.keys()
    for name in expected:
        bound = 2e-6 if "second_moment" in name else 1e-6
        assert (found[name] - expected[name]).norm() <= bound * expected[name].norm(), name


def assert_logs_near(found, expected):
    records = [read_log(folder / LOG) for folder in (found, expected)]
    for left, right in zip(*records, strict=True):
        for name in right.keys() - BY_THE_CLOCK:
            assert left[name] == (right[name] if name == "data" else pytest.approx(right[name], rel=1e-6)), (
                name
            )


def test_two_processes_compute_what_one_computes_as_copies_and_in_pieces(toys, folder):
    """Ragged, accumulated, with tied weights and sizes that two processes cannot halve."""
    one, copies, pieces = folder("one"), folder("copies"), folder("pieces")
    runs = [
        toys.run(one, *STEADY, "evaluate_every=3", dropout=0.0),
        toys.run(copies, *STEADY, "evaluate_every=3", dropout=0.0, processes=2),
        toys.run(pieces, *STEADY, "evaluate_every=3", "steps=3", dropout=0.0, processes=2, in_pieces=True),
    ]
    for run in runs:
        toys.finish(run)
    assert_near(state_at(copies, 6), state_at(one, 6))
    assert_logs_near(copies, one)
    assert (copies / CHECKPOINTS / "step-00000006" / "random-1.pt").exists()

    assert_near(state_at(pieces, 3), state_at(one, 3))
    said = toys.finish(toys.run(pieces, *STEADY, "evaluate_every=3", dropout=0.0, resume=True))
    assert "\n  processes: 1, was 2 (the data and their order stay" in said
    assert "\n  weights: copied, was in pieces" in said
    assert_near(state_at(pieces, 6), state_at(one, 6))
    assert_logs_near(pieces, one)


@pytest.mark.slow
def test_pieces_go_on_with_what_one_process_and_copies_began(toys, folder):
    one, mixed = folder("one"), folder("mixed")
    toys.finish(toys.run(one, *STEADY, "steps=9", "evaluate_every=3", dropout=0.0))
    for steps, way in ((3, {}), (6, {"processes": 2}), (9, {"processes": 2, "in_pieces": True})):
        toys.finish(
            toys.run(mixed, *STEADY, "evaluate_every=3", f"steps={steps}", dropout=0.0, resume=True, **way)
        )
        assert_near(state_at(mixed, steps), state_at(one, steps))
    assert_logs_near(mixed, one)


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "in_pieces"), [(2, False), (3, False), (2, True)])
def test_processes_resumed_twice_equal_uninterrupted_ones_bit_for_bit(toys, folder, processes, in_pieces):
    """With dropout and workers, across epochs."""
    straight, parts = folder("straight"), folder("parts")
    way = {"processes": processes, "in_pieces": in_pieces, "resume": True}
    settings = [*STEADY, "num_workers=1"]
    toys.finish(toys.run(straight, *settings, "steps=12", **way))
    for steps in (3, 9, 12):
        toys.finish(toys.run(parts, *settings, f"steps={steps}", **way))
    require_same(state_at(parts, 12), state_at(straight, 12))
    straight, parts = (timeless(path) for path in (straight, parts))
    assert [record for record in parts if "loss" in record] == [r for r in straight if "loss" in r]


@pytest.mark.slow
def test_two_processes_average_as_one_does_as_copies_and_in_pieces(toys, folder):
    """The moving average and the mean of checkpoints, with their scores; those in pieces were resumed."""
    settings = [*STEADY, "ema_decay=0.8", "average_checkpoints=3", "final_weights=ema", "evaluate_every=4"]
    one, copies, pieces = folder("one"), folder("copies"), folder("pieces")
    toys.finish(toys.run(one, *settings, "steps=8", dropout=0.0))
    toys.finish(toys.run(copies, *settings, "steps=8", dropout=0.0, processes=2))
    early = [setting for setting in settings if "average" not in setting]
    toys.finish(toys.run(pieces, *early, "steps=4", dropout=0.0, processes=2, in_pieces=True))
    toys.finish(toys.run(pieces, *settings, "steps=8", dropout=0.0, processes=2, in_pieces=True, resume=True))
    for kind in ("model", "ema", "mean"):
        expected, *found = (
            weights_in(path / CHECKPOINTS / "step-00000008", kind) for path in (one, copies, pieces)
        )
        for weights in found:
            assert_near(weights, expected)
    for path in (copies, pieces):
        records = [
            {key: value for r in read_log(each / LOG) if r["step"] == 8 for key, value in r.items()}
            for each in (path, one)
        ]
        for name in ("evaluation/loss", "evaluation/ema/loss", "evaluation/mean/loss"):
            assert records[0][name] == pytest.approx(records[1][name], rel=1e-6), name


def test_tied_weights_are_written_once_and_read_back(toys, tmp_path):
    model, other = toys.Model(), toys.Model()
    weights = each_once(whole_weights(model, Accelerator(cpu=True)))
    assert "embedding.weight" in weights
    assert "tokens.weight" not in weights
    save_file(weights, tmp_path / "weights")
    load_whole_weights(other, load_file(tmp_path / "weights"))
    for left, right in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop("norm.bias"), r"missing: \['norm.bias'\], unexpected: \[\]"),
        (lambda weights: weights.update(extra=torch.ones(1)), r"missing: \[\], unexpected: \['extra'\]"),
        (lambda weights: weights.update({"norm.bias": torch.ones(3)}), r"norm.bias has the shape \(3,\)"),
    ],
)
def test_weights_of_another_model_are_refused(toys, change, message):
    weights = {name: weight.clone() for name, weight in each_once(toys.Model().state_dict()).items()}
    change(weights)
    with pytest.raises(RuntimeError, match=message):
        load_whole_weights(toys.Model(), weights)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"FSDP_VERSION": "1"}, "fsdp_version is 1: choose --fsdp_version 2"),
        ({"FSDP_VERSION": "2", "FSDP_IGNORED_MODULES": "embed"}, "fsdp_ignored_modules is not supported"),
    ],
)
def test_what_accelerate_cannot_have_here_is_refused(variables, message, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    for name, value in {"ACCELERATE_USE_FSDP": "true", **variables}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        prepare_model(nn.Linear(2, 2), Accelerator(cpu=True))
