"""Compiled layers: what eager ones compute, by few graphs that are made once."""

import json
import re
import shutil

import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn.attention import flex_attention

from tercet.modeling.attention import kernels
from tercet.pretraining.run import pretrain
from tercet.training import stages
from tercet.training.devices import compiling
from tercet.training.tracking import LOG, read_log

from ..saved_weights import require_near_models, require_same_models

COMPILED = {
    "masked_language_modeling": 4,
    "masked_language_modeling_with_next_sentence": 4,
    "causal_language_modeling": 3,
    "hybrid_language_modeling": 6,
    "mixture": 7,
    "translation": 3,
    "replaced_token_detection": 6,
    "sentence_denoising": 3,
}
"""Objectives, and the graphs that they need: of all layers, a last one that computes a part, and the loss."""

QUICK = ("causal_language_modeling",)
"""Those of the default suite."""


@pytest.fixture(autouse=True)
def quick_compiler(monkeypatch):
    """Compile into the same operations, in a second."""
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in COMPILED]
)
def test_compiled_layers_learn_what_eager_ones_learn(kind, recipe_on):
    """In a few graphs, whatever the number of steps."""
    settings = {"precision": "fp32", "tokens_per_micro_batch": 140, "steps": 6}
    recipes = [recipe_on(kind, str(way), compile=way, **settings)[0] for way in (False, True)]
    eager, compiled = map(pretrain, recipes)
    require_near_models(compiled, eager, 1e-5)
    for records in zip(*(read_log(recipe.folder / LOG) for recipe in recipes), strict=True):
        losses = [{name: value for name, value in record.items() if "loss" in name} for record in records]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert 0 < counters["stats"]["unique_graphs"] <= COMPILED[kind]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_compiled_patterns_and_biases_learn_what_eager_ones_learn(recipe_on, monkeypatch):
    """By flex attention, which serves GPUs: torch computes it here once its refusal of gradients is gone."""
    overrides = {"layer_types": ["big_bird_attention", "full_attention"], "attention_block_size": 4}
    positions = {"position_embedding_type": "relative_bias", "num_hidden_layers": 2}
    settings = {"precision": "fp32", "tokens_per_micro_batch": 140, "steps": 6}
    recipes = [
        recipe_on("causal_language_modeling", str(way), compile=way, **settings)[0] for way in (False, True)
    ]
    for recipe in recipes:
        recipe.model.overrides.update(overrides | positions)
    eager = pretrain(recipes[0])
    monkeypatch.setattr(kernels, "runs_flex", lambda situation: True)
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)
    require_near_models(pretrain(recipes[1]), eager, 1e-5)
    summaries = [json.loads((recipe.folder / "evaluation.json").read_text()) for recipe in recipes]
    names = [summary["trained_on"]["attention"] for summary in summaries]
    assert names == ["grouped, 2 layers", "flex, 2 layers"]


@pytest.mark.slow
def test_a_compiled_run_that_is_resumed_equals_one_that_is_not(recipe_on, capsys):
    """In the middle of its first stage, with dropout; each stage says its sizes when it begins."""
    settings = {"precision": "fp32", "steps": 5, "checkpoint_every": 2, "keep_checkpoints": 9}
    settings |= {"stages": [{"steps": 3, "tokens_per_step": 256}], "compile": True, "dropout": 0.1}
    kind = "causal_language_modeling"
    whole, broken = (recipe_on(kind, name, **settings)[0] for name in ("whole", "broken"))
    expected = pretrain(whole)
    told = re.findall(r"fixed sizes: ([\d,]+) tokens, .* ([\d.]+)% filling", capsys.readouterr().err)
    assert [tokens for tokens, _ in told] == ["256", "448"]
    assert all(0 <= float(share) < 30 for _, share in told)
    pretrain(broken)
    for path in (broken.folder / "checkpoints").iterdir():
        if not path.name.endswith("2"):
            shutil.rmtree(path)
    require_same_models(pretrain(broken, resume=True), expected)


def test_a_recurrent_model_is_neither_filled_nor_compiled(recipe_on, monkeypatch, capsys):
    """It is told so where compiling is left to the run."""
    monkeypatch.setattr(compiling, "wants_graphs", lambda *_: True)
    monkeypatch.setattr(stages, "wants_graphs", lambda *_: True)
    model = {"preset": "recurrent-mini", "overrides": {"hidden_size": 32}}
    recipe, _ = recipe_on("translation", model=model, precision="fp32", steps=1)
    with pytest.warns(UserWarning, match="goes on without compiled layers: .* no layer of this model can be"):
        pretrain(recipe)
    assert "fixed sizes" not in capsys.readouterr().err
