"""Saves checkpoints of a toy in pieces, and checks them, in processes that `test_pieces.py` starts."""

import errno
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.distributed.tensor import DTensor

from tercet.data.files.atomic_writes import WriteError
from tercet.training.checkpoints.checkpoint import (
    checkpoints,
    find_damage,
    load_checkpoint,
    save_checkpoint,
    take_snapshot,
)
from tercet.training.checkpoints.checkpoint_writer import CheckpointWriter
from tercet.training.devices.precision import build_accelerator
from tercet.training.devices.sharding import each_once, prepare_model, whole
from tercet.training.loop import Training
from tercet.training.optimizers.averaging import WeightAverage
from tercet.training.optimizers.optimizers import build_optimizer
from tercet.training.optimizers.schedules import build_schedule
from tercet.training.recipe import OptimizerRecipe, ScheduleRecipe

from ..saved_weights import moments_in, require_same, weights_in
from .conftest import WIDTH, ToyModel, ToyObjective, move, toy_recipe


def state_of(model: nn.Module, folder: Path) -> Training:
    """Make a run of a model in pieces that has taken a step, with an average of its weights."""
    accelerator = build_accelerator(toy_recipe(), folder)
    prepared = prepare_model(model, accelerator)
    optimizer = build_optimizer(model, OptimizerRecipe(kind="normuon"))
    schedule = build_schedule(optimizer, ScheduleRecipe(), steps=100, width=WIDTH)
    averages = {"ema": WeightAverage(prepared)}
    run = Training(prepared, ToyObjective(), accelerator.prepare(optimizer), schedule, accelerator, 100)
    run.averages = averages
    move(run)
    return run


def gathered(
    run: Training,
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Gather the weights, their average and the optimizer's moments, as one process would have them."""
    model = run.bare_model

    def weights() -> dict[str, torch.Tensor]:
        pieces = each_once(model.state_dict(keep_vars=True))
        return {name: whole(piece.detach()).clone() for name, piece in pieces.items()}

    last = weights()
    with run.averages["ema"].in_place():
        average = weights()
    state = run.optimizer.state_dict()["state"]
    moments = {f"{i}.{name}": whole(value).clone() for i in state for name, value in state[i].items()}
    return last, average, moments


def raise_full(*arguments: object, **options: object) -> None:
    raise OSError(errno.ENOSPC, "full")


def require_as_gathered(checkpoint: Path, expected: tuple[dict[str, torch.Tensor], ...]) -> None:
    """Check that the files of a checkpoint hold what was gathered."""
    require_same(weights_in(checkpoint), expected[0])
    require_same(weights_in(checkpoint, "ema"), expected[1])
    require_same(moments_in(checkpoint), expected[2])


def toy_with_blocks() -> ToyModel:
    """Make a toy with whole numbers, whose matrix moves by Muon."""
    torch.manual_seed(0)
    model = ToyModel()
    model.blocks = nn.ModuleList([model.hidden])
    model.register_buffer("flags", torch.tensor([True, False, True]))
    model.register_buffer("numbers", torch.arange(3))
    return model


def pass_on() -> None:
    """Save into a folder what is read from a checkpoint; without one, what a step has made."""
    folder, *earlier = filter(None, sys.argv[1:])
    run = state_of(toy_with_blocks(), Path(folder))
    for path in earlier:
        load_checkpoint(Path(path), run)
    save_checkpoint(Path(folder), run, recipe={})


def main() -> None:
    """Save while the weights move on, then where there is no room, and say what became of it."""
    folder = Path(sys.argv[1])
    run = state_of(toy_with_blocks(), folder)
    assert any(
        isinstance(value, DTensor) for values in run.optimizer.state.values() for value in values.values()
    )
    before = gathered(run)
    snapshot = take_snapshot(folder, run, recipe={})
    move(run)
    with CheckpointWriter(in_background=True) as writer:
        writer.write(snapshot)
        move(run)  # with collectives of its own, while the other thread has its
        for _ in range(5):
            gathered(run)
    require_as_gathered(folder / "step-00000001", before)

    now = gathered(run)
    require_as_gathered(save_checkpoint(folder, run, recipe={}), now)
    move(run)
    if not run.accelerator.is_main_process:  # which is told so
        safetensors.torch.save = raise_full
    with pytest.raises(WriteError, match=r"step-00000004, which takes"):
        save_checkpoint(folder, run, recipe={})
    run.accelerator.wait_for_everyone()
    if run.accelerator.is_main_process:
        assert [path.name for path in checkpoints(folder)] == ["step-00000001", "step-00000003"]
        assert not list(folder.glob(".step-*"))
        assert all(find_damage(path) is None for path in checkpoints(folder))
    run.accelerator.wait_for_everyone()
