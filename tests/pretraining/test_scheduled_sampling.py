"""Runs with scheduled sampling: without probability they are runs without it, and resumed they end alike."""

import signal

import pytest

from tercet.configs.recipe import parse_recipe
from tercet.pretraining.objectives.translation import ScheduledSamplingRecipe, Translation
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.run import pretrain
from tercet.tools.plan.machines import PlanRecipe
from tercet.tools.plan.plan import plan_run

from ..saved_weights import require_same, weights_in
from .conftest import changed, recipe_data_of

MEMBERS = {
    "transformer": ("seq2seq-tiny", {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2}),
    "recurrent": ("recurrent-mini", {"hidden_size": 32}),
}


@pytest.fixture
def run(texts, tmp_path):
    """Give a function that trains a model for some steps, and gives its weights."""

    def run(member: str, folder: str, steps: int, sampling=None, *, resume: bool = False):
        preset, sizes = MEMBERS[member]
        overrides = sizes | {"num_hidden_layers": 1, "dropout": 0.1}
        schedule = {"schedule": {"warmup_steps": 0, "kind": "constant"}, "checkpoint_every": 2}
        data = recipe_data_of("translation", texts, tmp_path / folder, steps=steps, **schedule)
        data["model"] = {"preset": preset, "overrides": overrides}
        recipe = changed(parse_recipe(PretrainingRecipe, data), "objective", scheduled_sampling=sampling)
        return weights_in(pretrain(recipe, resume=resume))

    return run


@pytest.mark.parametrize("member", ["transformer", pytest.param("recurrent", marks=pytest.mark.slow)])
def test_a_stopped_run_goes_on_to_the_same_bits(member, run, monkeypatch):
    often = ScheduledSamplingRecipe(schedule="inverse_sigmoid", final_probability=0.6, steepness=2.0)
    whole, forced = run(member, "whole", 4, often), run(member, "forced", 4)
    assert any((whole[name] != forced[name]).any() for name in whole)
    learn, calls = Translation.losses, []

    def stopped(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGTERM)
        return learn(*arguments)

    monkeypatch.setattr(Translation, "losses", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(member, "parts", 4, often)
    assert len(calls) < 4
    require_same(run(member, "parts", 4, often, resume=True), whole)


@pytest.mark.parametrize("passes", [1, 6])
def test_a_plan_counts_the_passes_that_predict(passes, texts, tmp_path):
    planned = []
    for name, extra in (("forced", {}), ("sampled", {"scheduled_sampling": {"passes": passes}})):
        data = recipe_data_of("translation", texts, tmp_path / name)
        preset, sizes = MEMBERS["transformer"]
        data["model"] = {"preset": preset, "overrides": sizes | {"vocab_size": 400, "num_hidden_layers": 2}}
        data["objective"] = {"kind": "translation"} | extra
        recipe = parse_recipe(PretrainingRecipe, data)
        planned.append(plan_run(recipe, PlanRecipe(device="h100")).flops_per_token)
    assert planned[1] / planned[0] == pytest.approx(1 + passes / 3)
