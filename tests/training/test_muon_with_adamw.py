"""Muon or NorMuon, and AdamW, as one optimizer: each part does what it does alone, or nothing if told so."""

import copy

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from tercet.training.muon import Muon
from tercet.training.muon_with_adamw import hidden_matrices
from tercet.training.normuon import NorMuon
from tercet.training.optimizers import build_optimizer, decay_groups
from tercet.training.recipe import OptimizerRecipe, ScheduleRecipe
from tercet.training.schedules import build_schedule
from tercet.training.skipping import NonFiniteSteps

MUON, NORMUON = (
    OptimizerRecipe(kind, learning_rate=1e-2, matrix_learning_rate=3e-2, weight_decay=0.5)
    for kind in ("muon", "normuon")
)
both_kinds = pytest.mark.parametrize("recipe", [MUON, NORMUON], ids=lambda recipe: recipe.kind)


def give_gradients(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


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
            give_gradients(model, seed)
            for part in parts:
                part.step()
    assert_same_weights(together, apart)


@pytest.mark.parametrize("kind", ["muon", "normuon"])
def test_an_update_is_as_long_as_adamws(toys, kind):
    model = toys.Model()
    block = nn.Linear(64, 192, bias=False)
    model.blocks = nn.ModuleList([block])
    optimizer = build_optimizer(model, OptimizerRecipe(kind, learning_rate=1e-3, weight_decay=0.0))
    before = block.weight.clone()
    give_gradients(model, 0)
    optimizer.step()
    # AdamW's updates have a root mean square of 0.2 to 0.4 times the rate (Liu et al., 2025, section 2.2).
    update = (block.weight - before).detach()
    assert float(update.square().mean().sqrt()) == pytest.approx(0.2e-3, rel=0.3)


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
            give_gradients(model, seed)
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
        give_gradients(model, 9)
    steps.step_unless_broken(optimizers[0], torch.tensor(1.0))
    optimizers[1].step()
    assert_same_weights(broken, sound)


@both_kinds
def test_a_loaded_state_continues_bit_for_bit(twins, tmp_path, recipe):
    model, again = twins
    optimizer, resumed = (build_optimizer(model, recipe) for model in twins)
    give_gradients(model, 0)
    optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    again.load_state_dict(model.state_dict())
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for seed in (1, 2):
        for part, moved in ((optimizer, model), (resumed, again)):
            give_gradients(moved, seed)
            part.step()
    assert_same_weights(again, model)


@both_kinds
def test_where_there_are_no_blocks_it_is_refused(recipe):
    with pytest.raises(ValueError, match="Linear has no trainable matrices in blocks"):
        build_optimizer(nn.Linear(3, 3), recipe)
