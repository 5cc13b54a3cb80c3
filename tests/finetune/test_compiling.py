"""Fine-tuning with compiled layers: the weights of a run without them."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch._dynamo.utils import counters

from tercet.finetune.run import finetune
from tercet.training.devices import compiling

TRAINING = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3, "precision": "fp32"}
NO_DROPOUT = {"overrides": {"dropout": 0.0}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "more"), [("classification", {}), ("classification", {"lora": {"rank": 2}}), ("ranking", {})]
)
def test_compiled_layers_learn_what_eager_ones_learn(kind, more, recipe_of, monkeypatch, tmp_path):
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    task, weights = {"group_size": 2} if kind == "ranking" else {}, []
    for way in (False, True):
        recipe = recipe_of(kind, training=TRAINING | {"compile": way}, task=task, model=NO_DROPOUT, **more)
        folder = finetune(replace(recipe, output=str(tmp_path / str(way))))
        weights.append(load_file(folder / "model.safetensors"))
    for name, expected in weights[0].items():
        assert (weights[1][name] - expected).norm() <= 1e-4 * expected.norm(), name
    assert 0 < counters["stats"]["unique_graphs"] <= 2  # of the first layer, which has no gradient with LoRA
