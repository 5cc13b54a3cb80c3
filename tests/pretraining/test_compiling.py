"""Compiled layers: what eager ones compute, by few graphs that are made once."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch._dynamo.utils import counters
from torch.nn.attention import flex_attention

from tercet.modeling.attention_kernels import KERNELS
from tercet.pretraining.run import pretrain
from tercet.training import compiling
from tercet.training.tracking import LOG, read_log

COMPILED = {
    "masked_language_modeling": 2,
    "masked_language_modeling_with_next_sentence": 2,
    "causal_language_modeling": 2,
    "hybrid_language_modeling": 4,
    "mixture": 4,
    "translation": 2,
    "replaced_token_detection": 6,
}
"""Objectives, and the graphs that they need: of all layers, and of a last one that computes a part."""

QUICK = ("causal_language_modeling", "mixture")
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
    eager, compiled = (load_file(pretrain(recipe) / "model.safetensors") for recipe in recipes)
    for name, expected in eager.items():
        assert (compiled[name] - expected).norm() <= 1e-5 * expected.norm(), name
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
    eager = load_file(pretrain(recipes[0]) / "model.safetensors")
    anywhere = replace(KERNELS["flex"], devices=None, is_available=None, multiple_of_channels=1)
    monkeypatch.setitem(KERNELS, "flex", anywhere)
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)
    compiled = load_file(pretrain(recipes[1]) / "model.safetensors")
    for name, expected in eager.items():
        assert (compiled[name] - expected).norm() <= 1e-5 * expected.norm(), name
    summaries = [json.loads((recipe.folder / "evaluation.json").read_text()) for recipe in recipes]
    names = [summary["trained_on"]["attention"] for summary in summaries]
    assert names == ["grouped, 2 layers", "flex, 2 layers"]
