"""Which constants an optimizer has, and what it decays."""

import pytest
import torch

from tercet.configs.recipe import parse_recipe
from tercet.training.optimizers.optimizers import build_optimizer, decay_groups
from tercet.training.recipe import OptimizerRecipe, ScheduleRecipe, TrainingRecipe


def test_only_weight_matrices_decay(toys):
    model = toys.Model()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed, spared = ({names[id(p)] for p in group["params"]} for group in decay_groups(model, 0.1))
    assert decayed == {"hidden.weight", "lengths.weight"}
    assert spared == {"embedding.weight", "hidden.bias", "norm.weight", "norm.bias", "lengths.bias"}


def test_frozen_parameters_are_left_out(toys):
    model = toys.Model()
    model.hidden.requires_grad_(False)
    assert sum(len(group["params"]) for group in decay_groups(model, 0.1)) == 5


def test_adam_has_the_transformer_papers_constants(toys):
    optimizer = build_optimizer(toys.Model(), OptimizerRecipe(kind="adam"), sets_learning_rate=True)
    assert isinstance(optimizer, torch.optim.Adam)
    assert not isinstance(optimizer, torch.optim.AdamW)
    assert (optimizer.defaults["betas"], optimizer.defaults["eps"]) == ((0.9, 0.98), 1e-9)
    assert optimizer.defaults["lr"] == 1.0
    told = OptimizerRecipe(kind="adam", learning_rate=0.01)
    assert build_optimizer(toys.Model(), told).defaults["lr"] == 0.01


def test_adamw_is_fused_and_has_robertas_constants(toys):
    optimizer = build_optimizer(toys.Model(), OptimizerRecipe())
    assert optimizer.defaults["fused"]
    assert (optimizer.defaults["betas"], optimizer.defaults["eps"]) == ((0.9, 0.98), 1e-6)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]


@pytest.mark.parametrize(
    ("fields", "is_noam", "message"),
    [
        ({"learning_rate": 0.1}, True, "learning_rate = 0.1: the noam schedule derives the learning rate"),
        ({"kind": "adam", "weight_decay": 0.1}, False, "weight_decay = 0.1: adam has no weight decay"),
        ({"matrix_learning_rate": 0.1}, False, "matrix_learning_rate = 0.1: adamw has one learning rate"),
        ({"kind": "muon", "neuron_beta": 0.9}, False, "neuron_beta = 0.9: muon does not .*; remove it"),
        ({"kind": "muon", "matrix_learning_rate": 0.1}, True, "matrix_learning_rate = 0.1: the noam sch"),
        ({"kind": "adam", "layer_decay": 0.5}, False, "layer_decay = 0.5: adam has one learning rate"),
        ({"kind": "muon", "layer_decay": 0.5}, False, "layer_decay = 0.5: muon has one learning rate"),
    ],
)
def test_constants_that_mean_nothing_are_refused(fields, is_noam, message):
    schedule = ScheduleRecipe(kind="noam" if is_noam else "linear")
    with pytest.raises(ValueError, match=message):
        TrainingRecipe(steps=99, optimizer=OptimizerRecipe(**fields), schedule=schedule)


@pytest.mark.parametrize("kind", ["adamw", "adam"])
@pytest.mark.parametrize("betas", [[0, 0], [0.999999, 0.999999], [1, 0.9], [0.9, 1], [-0.1, 0.9]])
def test_decay_rates_that_an_optimizer_would_not_take_are_refused_with_their_key(kind, betas, toys):
    data = {"kind": kind, "betas": betas}
    if all(0 <= beta < 1 for beta in betas):
        build_optimizer(toys.Model(), parse_recipe(OptimizerRecipe, data))
        return
    with pytest.raises(ValueError, match=r"betas\.\d = \S+: must be"):
        parse_recipe(OptimizerRecipe, data)
