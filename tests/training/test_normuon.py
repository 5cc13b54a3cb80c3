"""NorMuon against its definition, Muon and hand-worked numbers."""

import math

import pytest
import torch
from torch import nn

from tercet.training.muon import Muon
from tercet.training.normuon import NorMuon

from .newton_schulz import SHAPES, give_gradients, iterated, matrices_of


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


def test_steps_are_those_of_the_definition():
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
        assert (matrix - expected).norm() < 0.02 * moved, index  # the products are bfloat16's


def test_the_first_update_gives_every_neuron_the_same_length():
    """The second moment is then the row's own, whatever beta is."""
    (matrix,) = matrices_of([(12, 20)])
    before = matrix.detach().clone()
    give_gradients([matrix], 1)
    assert matrix.grad is not None
    matrix.grad = matrix.grad * torch.tensor([1.0, 1, 1, 100, *[1] * 8])[:, None]
    NorMuon([matrix], 0.1, 0.0).step()
    lengths = (matrix - before).norm(dim=1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, float(lengths.mean().detach())))


def test_a_neuron_is_divided_by_the_moving_average_of_its_mean_square():
    """Worked by hand: mean squares of (1, 4) and then (9, 4) with beta 0.75 give (2.4375, 1.75)."""
    matrix = nn.Parameter(torch.zeros(2, 2))
    optimizer = NorMuon([matrix], 1.0, 0.0, neuron_beta=0.75)
    group = optimizer.param_groups[0]
    matrix.grad = torch.zeros(2, 2)
    optimizer.step()
    for direction in ([[1.0, -1.0], [2.0, 2.0]], [[3.0, 3.0], [2.0, -2.0]]):
        (update,) = optimizer._updates([matrix], torch.tensor([direction]), group, torch.tensor(False))
    moments = optimizer.state[matrix]["neuron_second_moment"]
    torch.testing.assert_close(moments, torch.tensor([[2.4375], [1.75]]))
    expected = torch.tensor([[3.0, 3.0], [2.0, -2.0]]) / moments.sqrt()
    torch.testing.assert_close(update, expected * math.sqrt(26) / expected.norm())


def test_an_update_is_as_long_as_muons():
    ours, theirs = matrices_of(SHAPES), matrices_of(SHAPES)
    parts = NorMuon(ours, 0.1, 0.0), Muon(theirs, 0.1, 0.0)
    for seed in range(3):
        before = [matrix.detach().clone() for matrix in (*ours, *theirs)]
        for matrices, part in zip((ours, theirs), parts, strict=True):
            give_gradients(matrices, seed)
            part.step()
        lengths = [
            float((matrix - old).detach().norm())
            for matrix, old in zip((*ours, *theirs), before, strict=True)
        ]
        assert lengths[: len(ours)] == pytest.approx(lengths[len(ours) :], rel=1e-4)


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
