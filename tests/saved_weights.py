"""Weights in files: what a folder holds, and whether two folders hold the same."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from tercet.training.checkpoints.checkpoint import PIECES
from tercet.training.checkpoints.pieces import read_pieces


def weights_in(folder: Path, kind: str = "model") -> dict[str, Tensor]:
    return load_file(folder / f"{kind}.safetensors")


def moments_in(checkpoint: Path) -> dict[str, Tensor]:
    """Read the optimizer's whole moments by the parameter's number and their name, also those in pieces."""
    state = torch.load(checkpoint / "optimizer.pt")["optimizer"]["state"]
    moments = {f"{number}.{name}": value for number in state for name, value in state[number].items()}
    folder = checkpoint / PIECES
    return moments | (read_pieces(folder, lambda name: None) if folder.exists() else {})


def require_same(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Check that tensors are equal bit for bit, and have the same names."""
    assert found.keys() == expected.keys()
    for name in expected:
        assert torch.equal(found[name], expected[name]), name


def require_same_models(found: Path, expected: Path) -> None:
    """Check that the weights in two folders are equal bit for bit."""
    require_same(weights_in(found), weights_in(expected))


def require_near_models(found: Path, expected: Path, error: float) -> None:
    """Check that two folders hold the same files, and the same weights within a share of their norm."""
    assert {path.name for path in found.iterdir()} == {path.name for path in expected.iterdir()}
    ours, theirs = weights_in(found), weights_in(expected)
    assert ours.keys() == theirs.keys()
    for name in theirs:
        difference = (ours[name].double() - theirs[name].double()).norm()
        assert difference <= error * theirs[name].double().norm(), name
