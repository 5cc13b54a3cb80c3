"""Runs of mixtures, hybrids and changing objectives: exact, resumable, and saved for both readings."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.run import pretrain
from tercet.training.tracking import LOG, read_log

from ..saved_weights import require_same, require_same_models, weights_in
from .conftest import unread_recipe

FALLING = {"kind": "masked_language_modeling", "mlm_probability": 0.3, "final_mlm_probability": 0.1}
PAIRS = {"kind": "masked_language_modeling_with_next_sentence"}
MIXTURE = {
    "kind": "mixture",
    "objectives": [{"share": 1, "objective": FALLING}, {"share": 3, "objective": PAIRS}],
}
CAUSAL = {"kind": "causal_language_modeling"}
TWICE = {
    "kind": "mixture",
    "objectives": [{"share": 1, "objective": CAUSAL}, {"share": 1, "objective": CAUSAL | {"z_loss": 1e-4}}],
}
HYBRID = {"kind": "hybrid_language_modeling", "causal_share": 0.3} | {"final_mlm_probability": 0.3}


@pytest.fixture
def recipe_with(recipe_of, texts, tmp_path):
    def recipe_with(objective: dict, name: str = "run", **training) -> PretrainingRecipe:
        kind = HYBRID["kind"] if objective in (HYBRID, TWICE) else PAIRS["kind"]
        recipe = recipe_of(kind, texts, tmp_path / name, **training)
        other = unread_recipe("", {"preset": "encoder-tiny"}, objective=objective)
        return replace(recipe, objective=other.objective)

    return recipe_with


def test_the_masking_probability_falls_in_a_run_and_is_final_in_evaluation(recipe_with):
    recipe = recipe_with(FALLING, steps=30, log_every=1)
    pretrain(recipe)
    records = [record for record in read_log(recipe.folder / LOG) if "targets" in record]
    tokens, targets = (np.diff([0, *(record[name] for record in records)]) for name in ("tokens", "targets"))
    expected = np.linspace(0.3, 0.1, 31)[:30] * tokens
    # Binomial, [CLS] and [SEP] left out, which are few.
    assert abs(targets.sum() - expected.sum()) < 3 * np.sqrt(expected.sum()) + 0.05 * expected.sum()
    assert (targets[:5] / tokens[:5]).mean() > 1.7 * (targets[-5:] / tokens[-5:]).mean()
    always = recipe_with(FALLING | {"mlm_probability": 0.1}, "always", steps=2)
    pretrain(always)
    counts = [evaluation(run)["mlm/targets"] for run in (recipe, always)]
    assert counts[0] == counts[1]


def test_an_objective_that_is_named_twice_has_bits_per_byte_for_both(recipe_with):
    recipe = recipe_with(TWICE)
    pretrain(recipe)
    scores = evaluation(recipe)
    assert scores["clm/bits_per_byte"] == pytest.approx(scores["clm_2/bits_per_byte"])
    per_byte = scores["clm/loss"] / scores["clm/bits_per_byte"]
    assert scores["clm_2/loss"] / scores["clm_2/bits_per_byte"] == pytest.approx(per_byte)


def evaluation(recipe: PretrainingRecipe) -> dict[str, float]:
    return json.loads((recipe.folder / "evaluation.json").read_text())["scores"]


@pytest.mark.parametrize(
    "objective", [MIXTURE, pytest.param(HYBRID, marks=pytest.mark.slow)], ids=["mixture", "hybrid"]
)
def test_a_run_that_is_stopped_and_resumed_equals_one_that_is_not(objective, recipe_with):
    settings = {"steps": 4, "checkpoint_every": 2, "keep_checkpoints": 9, "log_every": 1, "precision": "fp32"}
    whole, broken = (recipe_with(objective, name, **settings) for name in ("whole", "broken"))
    pretrain(broken)
    shutil.rmtree(broken.folder / "checkpoints" / "step-00000004")
    require_same_models(pretrain(broken, resume=True), pretrain(whole))


def test_a_mixture_reports_every_term_of_every_objective(recipe_with):
    recipe = recipe_with(MIXTURE, steps=4, log_every=1)
    pretrain(recipe)
    scores = evaluation(recipe)
    assert {name.partition("/")[0] for name in scores} == {"loss", "mlm", "mlm_2", "nsp"}
    total = 0.25 * scores["mlm/loss"] + 0.75 * (scores["mlm_2/loss"] + scores["nsp/loss"])
    assert scores["loss"] == pytest.approx(total)
    last = [record for record in read_log(recipe.folder / LOG) if "mlm/loss" in record][-1]
    total = 0.25 * last["mlm/loss"] + 0.75 * (last["mlm_2/loss"] + last["nsp/loss"])
    assert last["loss"] == pytest.approx(total)


def test_a_hybrid_loads_in_both_readings_with_equal_weights(recipe_with):
    folder = pretrain(recipe_with(HYBRID, steps=2))
    stored = weights_in(folder)
    for auto_class in (AutoModelForCausalLM, AutoModelForMaskedLM):
        state = auto_class.from_pretrained(folder).state_dict()
        require_same({name: state[name] for name in stored}, stored)
