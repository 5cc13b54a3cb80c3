"""What optimizers and averages of weights keep beside the weights."""

from dataclasses import replace

import pytest

from tercet.planning.model_costs import average_bytes, build_planned_model, count, optimizer_bytes
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.training.muon import hidden_matrices
from tercet.training.recipe import OptimizerRecipe

from ..pretraining.conftest import unread_recipe


@pytest.fixture
def recipe() -> PretrainingRecipe:
    return unread_recipe("causal_language_modeling", {"preset": "decoder-tiny"})


def test_a_moving_average_takes_four_bytes_a_parameter(recipe):
    model = build_planned_model(recipe)
    assert average_bytes(model, recipe.training) == 0
    assert average_bytes(model, replace(recipe.training, ema_decay=0.999)) == 4 * count([model])


def test_normuon_keeps_a_moment_for_each_neuron_beside_those_of_muon(recipe):
    model = build_planned_model(recipe)
    muon, normuon = (
        optimizer_bytes(model, replace(recipe.training, optimizer=OptimizerRecipe(kind)))
        for kind in ("muon", "normuon")
    )
    assert normuon - muon == 4 * sum(matrix.shape[0] for matrix in hidden_matrices(model))
