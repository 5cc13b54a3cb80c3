"""Muon against torch's own, NorMuon against its definition, and both beside AdamW as one optimizer."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.optim import AdamW
from torch.optim import Muon as TorchMuon

from tercet.training.optimizers import orthogonalization
from tercet.training.optimizers.muon import Muon, NorMuon, hidden_matrices
from tercet.training.optimizers.optimizers import build_optimizer, decay_groups
from tercet.training.optimizers.orthogonalization import batches_of_one_shape
from tercet.training.optimizers.schedules import build_schedule
from tercet.training.recipe import OptimizerRecipe, ScheduleRecipe
from tercet.training.skipping import NonFiniteSteps

from .newton_schulz import SHAPES, give_gradients, iterated, matrices_of

FORMATS = [torch.bfloat16, torch.float32]


@pytest.mark.parametrize("products", FORMATS, ids=str)
def test_steps_are_those_of_torchs_muon(products):
    ours, theirs = matrices_of(SHAPES), matrices_of(SHAPES)
    before = [matrix.detach().clone() for matrix in ours]
    parts = (
        Muon(ours, 0.1, 0.5, products=products),
        TorchMuon(theirs, 0.1, 0.5, adjust_lr_fn="match_rms_adamw"),
    )
    for seed in range(4):
        for matrices, part in zip((ours, theirs), parts, strict=True):
            give_gradients(matrices, seed)
            part.step()
    for mine, other, old in zip(ours, theirs, before, strict=True):
        assert (mine - other).norm() < 0.02 * (other - old).norm()  # torch's products are bfloat16's
        key = "momentum_buffer"
        torch.testing.assert_close(parts[0].state[mine][key], parts[1].state[other][key])


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
from tercet.training.optimizers import orthogonalization
from tercet.training.optimizers.muon import Muon, NorMuon
from tests.training.newton_schulz import give_gradients, matrices_of

torch.distributed.init_process_group("gloo")
processes, calls = init_device_mesh("cpu", (2,)), []
orthogonalization.SHARED_FROM, once = 6, orthogonalization.newton_schulz
orthogonalization.newton_schulz = lambda matrices: calls.append(len(matrices)) or once(matrices)
for products, kind in ((torch.float32, Muon), (torch.float32, NorMuon), (torch.bfloat16, NorMuon)):
    results, counts = [], []
    for way in ("alone", "copies", "pieces"):
        cut = (lambda m: distribute_tensor(m, processes, [Shard(0)])) if way == "pieces" else lambda m: m
        whole = matrices_of([(7, 10)] * 3 + [(10, 6)] + [(1, 5)] * 2)
        matrices = [nn.Parameter(cut(matrix.detach())) for matrix in whole]
        optimizer = kind(
            matrices, 0.1, 0.5, products=products, copies=processes if way == "copies" else None
        )
        for seed in range(3):
            calls.clear()
            give_gradients(whole, seed)
            for matrix, other in zip(matrices, whole):
                matrix.grad = cut(other.grad)
            optimizer.step()
        counts.append(sum(calls))
        results.append([m.full_tensor() if isinstance(m, DTensor) else m.detach() for m in matrices])
    for one, other in zip(results[1] + results[2], 2 * results[0]):
        error = 1e-6 if products == torch.float32 else 1e-2
        assert (one - other).norm() <= error * other.norm(), (kind, products)
    line = f"{torch.distributed.get_rank()} {counts}\\n"
    print(line, end="", flush=True)  # in one piece, as the other process prints, too
torch.distributed.destroy_process_group()
"""


def test_processes_share_the_work_of_copies_and_pieces_and_move_them_as_one(fork_server):
    """Of three matrices (7, 10), one (10, 6) and two (1, 5), the first process has two, one and one."""
    run = fork_server.start(SHARING, processes=2)
    status, said = fork_server.wait(run), run.output.read_text()
    assert status == 0, said
    counts = sorted(line for line in said.splitlines() if line[0] in "01")
    assert counts == ["0 [6, 5, 4]"] * 3 + ["1 [6, 4, 2]"] * 3


def defined(weight, gradients, *, rate, decay, beta):
    """Algorithm 1 of Li et al., 2025, element by element, with the authors' length and momentum."""
    rows, columns = weight.shape
    weight, momentum, moments = weight.detach().clone(), torch.zeros_like(weight), [0.0] * rows
    for gradient in gradients:
        momentum = 0.95 * momentum + 0.05 * gradient
        direction = iterated(0.95 * momentum + 0.05 * gradient)
        update = torch.zeros_like(direction)
        for row in range(rows):
            square = sum(float(value) ** 2 for value in direction[row]) / columns
            moments[row] = beta * moments[row] + (1 - beta) * square
            for column in range(columns):
                update[row, column] = direction[row, column] / (math.sqrt(moments[row]) + 1e-8)
        update *= direction.norm() / update.norm()
        weight = (1 - rate * decay) * weight - rate * 0.2 * math.sqrt(max(rows, columns)) * update
    return weight


def test_steps_of_normuon_are_those_of_the_definition():
    matrices = matrices_of(SHAPES)
    before = [matrix.detach().clone() for matrix in matrices]
    optimizer = NorMuon(matrices, 0.1, 0.5, neuron_beta=0.8)
    gradients = []
    for seed in range(4):
        give_gradients(matrices, seed)
        gradients.append([matrix.grad.clone() for matrix in matrices])
        optimizer.step()
    for index, matrix in enumerate(matrices):
        expected = defined(before[index], [step[index] for step in gradients], rate=0.1, decay=0.5, beta=0.8)
        moved = (expected - before[index]).norm()
        assert (matrix - expected).norm() < 1e-4 * moved, index


def test_without_a_gradient_nothing_moves():
    matrices = matrices_of([(4, 4), (4, 4)])
    before = [matrix.detach().clone() for matrix in matrices]
    give_gradients(matrices[:1], 0)
    optimizer = NorMuon(matrices, 0.1, 0.5)
    optimizer.step()
    assert torch.equal(matrices[1], before[1])
    assert not optimizer.state[matrices[1]]
    matrices[0].grad.zero_()
    optimizer.state[matrices[0]]["momentum_buffer"].zero_()
    before[0] = matrices[0].detach().clone()
    optimizer.step()
    torch.testing.assert_close(matrices[0].detach(), before[0] * (1 - 0.1 * 0.5))  # weight decay alone


MUON, NORMUON = (
    OptimizerRecipe(kind, learning_rate=1e-2, matrix_learning_rate=3e-2, weight_decay=0.5)
    for kind in ("muon", "normuon")
)
both_kinds = pytest.mark.parametrize("recipe", [MUON, NORMUON], ids=lambda recipe: recipe.kind)


def assert_same_weights(found: nn.Module, expected: nn.Module) -> None:
    for (name, left), right in zip(found.named_parameters(), expected.parameters(), strict=True):
        assert torch.equal(left.view(torch.int32), right.view(torch.int32)), name  # also the sign of a zero


@pytest.fixture
def twins(toys):
    model = toys.with_blocks()
    return model, copy.deepcopy(model)


def test_the_matrices_are_those_inside_blocks():
    model = nn.Module()
    model.embeddings = nn.Embedding(5, 4)
    model.layers = nn.ModuleList([nn.TransformerEncoderLayer(4, 2, 8), nn.Embedding(3, 4)])
    model.head = nn.Linear(4, 5)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    inside = {"self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight"}
    assert {names[id(p)] for p in hidden_matrices(model)} == {f"layers.0.{name}" for name in inside}


def test_the_matrices_of_recurrent_layers_are_those_of_states():
    model = nn.Module()
    model.embeddings = nn.Embedding(5, 4)
    model.reader = nn.LSTM(4, 3, proj_size=2)
    model.writers = nn.ModuleList([nn.GRU(4, 3)])
    model.head = nn.Linear(3, 5)
    names = [name for name, parameter in model.named_parameters() if parameter.dim() == 2]
    found = [id(parameter) for parameter in hidden_matrices(model)]
    expected = {name for name in names if name.startswith(("reader", "writers"))}
    assert len(found) == len(set(found)) == len(expected) == 5
    assert {name for name, parameter in model.named_parameters() if id(parameter) in found} == expected


def test_frozen_matrices_are_left_out(toys):
    model = toys.with_blocks()
    model.blocks.append(nn.Linear(16, 16))
    model.blocks[0].requires_grad_(False)
    assert [id(p) for p in hidden_matrices(model)] == [id(model.blocks[1].weight)]


@both_kinds
def test_each_part_moves_as_it_does_alone(twins, recipe):
    together, apart = twins
    optimizer = build_optimizer(together, recipe)
    matrices = hidden_matrices(apart)
    others = decay_groups(apart, 0.5, without=matrices)
    muon = Muon(matrices, 3e-2, 0.5) if recipe is MUON else NorMuon(matrices, 3e-2, 0.5)
    alone = (AdamW(others, 1e-2, (0.9, 0.98), 1e-6, fused=True), muon)
    for seed in range(3):
        for model, parts in ((together, [optimizer]), (apart, alone)):
            give_gradients(model.parameters(), seed)
            for part in parts:
                part.step()
    assert_same_weights(together, apart)


@both_kinds
def test_one_schedule_moves_both_rates(toys, recipe):
    optimizer = build_optimizer(toys.with_blocks(), recipe)
    schedule = build_schedule(optimizer, ScheduleRecipe("linear", warmup_steps=2), steps=4, width=16)
    assert [group["lr"] for group in optimizer.param_groups] == [5e-3, 5e-3, 1.5e-2]
    optimizer.step()
    schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == [1e-2, 1e-2, 3e-2]


@both_kinds
@pytest.mark.parametrize("num_sound_steps", [0, 2])
def test_a_broken_step_changes_nothing(twins, num_sound_steps, recipe):
    broken, sound = twins
    for model in twins:
        model.hidden.weight.data[0] = -0.0
    optimizers = [build_optimizer(model, recipe) for model in twins]
    for seed in range(num_sound_steps):
        for model, optimizer in zip(twins, optimizers, strict=True):
            give_gradients(model.parameters(), seed)
            optimizer.step()
    steps = NonFiniteSteps(limit=2, device=torch.device("cpu"))
    for parameter in broken.parameters():
        parameter.grad = torch.full_like(parameter, torch.nan)
    steps.step_unless_broken(optimizers[0], torch.tensor(torch.nan))
    assert_same_weights(broken, sound)
    for mine, other in zip(*(model.parameters() for model in twins), strict=True):
        for name, value in optimizers[0].state[mine].items():
            expected = optimizers[1].state[other].get(name, torch.zeros_like(value))
            assert torch.equal(value.view(torch.int32), expected.view(torch.int32)), name
    for model in twins:
        give_gradients(model.parameters(), 9)
    steps.step_unless_broken(optimizers[0], torch.tensor(1.0))
    optimizers[1].step()
    assert_same_weights(broken, sound)


@both_kinds
def test_where_there_are_no_blocks_it_is_refused(recipe):
    with pytest.raises(ValueError, match="Linear has no trainable matrices in blocks"):
        build_optimizer(nn.Linear(3, 3), recipe)
