"""Muon and its orthogonalization against torch's own and the definition, in bfloat16 and in float32."""

import pytest
import torch
from torch.optim import Muon as TorchMuon

from tercet.training import orthogonalization
from tercet.training.muon import Muon
from tercet.training.orthogonalization import batches_of_one_shape, orthogonalized

from .newton_schulz import SHAPES, give_gradients, iterated, matrices_of

FORMATS = [torch.bfloat16, torch.float32]


@pytest.fixture(params=FORMATS, ids=str)
def products(request, monkeypatch) -> torch.dtype:
    """A device with fast products in bfloat16, or without."""
    has_it = request.param == torch.bfloat16
    monkeypatch.setattr(orthogonalization, "has_bfloat16", lambda device: has_it)
    return request.param


def test_steps_are_those_of_torchs_muon(products):
    ours, theirs = matrices_of(SHAPES), matrices_of(SHAPES)
    before = [matrix.detach().clone() for matrix in ours]
    parts = Muon(ours, 0.1, 0.5), TorchMuon(theirs, 0.1, 0.5, adjust_lr_fn="match_rms_adamw")
    for seed in range(4):
        for matrices, part in zip((ours, theirs), parts, strict=True):
            give_gradients(matrices, seed)
            part.step()
    for mine, other, old in zip(ours, theirs, before, strict=True):
        assert (mine - other).norm() < 0.02 * (other - old).norm()  # torch's products are bfloat16's
        key = "momentum_buffer"
        torch.testing.assert_close(parts[0].state[mine][key], parts[1].state[other][key])


@pytest.mark.parametrize("shape", [(8, 8), (8, 24), (24, 8)])
def test_matrices_are_orthogonalized_together_as_one_at_a_time(shape, products):
    matrices = [matrix.detach() for matrix in matrices_of([shape, shape[::-1]] * 3)]
    error = 0.01 if products == torch.bfloat16 else 1e-5
    for found, matrix in zip(orthogonalized(matrices), matrices, strict=True):
        assert found.shape == matrix.shape
        assert found.dtype == matrix.dtype
        expected = iterated(matrix, products)
        assert (found - expected).norm() < error * expected.norm()
        values = torch.linalg.svdvals(found)
        assert 0.68 < values.median() < 1.15
        assert values.max() < 1.3


def test_batches_have_one_shape_and_a_limit(monkeypatch):
    monkeypatch.setattr(orthogonalization, "BATCH_NUMBERS", 130)
    matrices = matrices_of(SHAPES)
    batches = list(batches_of_one_shape(matrices))
    assert [[tuple(matrix.shape) for matrix in batch] for batch in batches] == [
        [(6, 6), (6, 6)],
        [(6, 10), (10, 6)],
        [(6, 10)],
        [(1, 5)],
    ]
    monkeypatch.setattr(orthogonalization, "BATCH_NUMBERS", 1)
    assert len(list(batches_of_one_shape(matrices))) == len(matrices)
