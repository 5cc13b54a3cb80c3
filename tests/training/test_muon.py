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
    matrices = [matrix.detach() for matrix in matrices_of([shape] * 3)]
    error = 0.01 if products == torch.bfloat16 else 1e-5
    for found, matrix in zip(orthogonalized(torch.stack(matrices), matrices[0]), matrices, strict=True):
        assert found.shape == matrix.shape
        assert found.dtype == matrix.dtype
        expected = iterated(matrix, products)
        assert (found - expected).norm() < error * expected.norm()
        values = torch.linalg.svdvals(found)
        assert 0.68 < values.median() < 1.15
        assert values.max() < 1.3


def test_batches_have_one_shape_and_a_limit(monkeypatch):
    monkeypatch.setitem(orthogonalization.BATCH_NUMBERS, "cpu", 110)
    matrices = matrices_of(SHAPES)
    batches = list(batches_of_one_shape(matrices))
    assert [[tuple(matrix.shape) for matrix in batch] for batch in batches] == [
        [(6, 6), (6, 6)],
        [(6, 10)],
        [(6, 10)],
        [(10, 6)],
        [(1, 5)],
    ]
    monkeypatch.setattr(orthogonalization, "MANY_NUMBERS", 120)
    assert [len(batch) for batch in batches_of_one_shape(m.to("meta") for m in matrices)] == [2, 2, 1, 1]


SHARING = """
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from tercet.training import orthogonalization
from tercet.training.muon import Muon
from tercet.training.normuon import NorMuon
from tests.training.newton_schulz import give_gradients, matrices_of

torch.distributed.init_process_group("gloo")
processes, calls = init_device_mesh("cpu", (2,)), []
orthogonalization.SHARED_FROM, once = 6, orthogonalization.newton_schulz
orthogonalization.newton_schulz = lambda matrices: calls.append(len(matrices)) or once(matrices)
for has_it, kind in ((False, Muon), (False, NorMuon), (True, NorMuon)):
    orthogonalization.has_bfloat16 = lambda device: has_it
    results, counts = [], []
    for way in ("alone", "copies", "pieces"):
        cut = (lambda m: distribute_tensor(m, processes, [Shard(0)])) if way == "pieces" else lambda m: m
        whole = matrices_of([(7, 10)] * 3 + [(10, 6)] + [(1, 5)] * 2)
        matrices = [nn.Parameter(cut(matrix.detach())) for matrix in whole]
        optimizer = kind(matrices, 0.1, 0.5, copies=processes if way == "copies" else None)
        for seed in range(3):
            calls.clear()
            give_gradients(whole, seed)
            for matrix, other in zip(matrices, whole):
                matrix.grad = cut(other.grad)
            optimizer.step()
        counts.append(sum(calls))
        results.append([m.full_tensor() if isinstance(m, DTensor) else m.detach() for m in matrices])
    for one, other in zip(results[1] + results[2], 2 * results[0]):
        assert (one - other).norm() <= (1e-2 if has_it else 1e-6) * other.norm(), (kind, has_it)
    print(torch.distributed.get_rank(), counts)
torch.distributed.destroy_process_group()
"""


def test_processes_share_the_work_of_copies_and_pieces_and_move_them_as_one(fork_server):
    """Of three matrices (7, 10), one (10, 6) and two (1, 5), the first process has two, one and one."""
    run = fork_server.start(SHARING, processes=2)
    status, said = fork_server.wait(run), run.output.read_text()
    assert status == 0, said
    counts = sorted(line for line in said.splitlines() if line[0] in "01")
    assert counts == ["0 [6, 5, 4]"] * 3 + ["1 [6, 4, 2]"] * 3
