"""TRL's trainers load our folders by name, and learn from them what they learn from the same stock model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedModel

from tercet.modeling import TercetDecoderForSequenceClassification
from tercet.modeling.stock.models import to_stock

from .conftest import PLAIN_TRAINING

trl: Any = pytest.importorskip("trl", reason="TRL is not installed")

STANDARD = PLAIN_TRAINING | {"max_steps": 1, "bf16": False, "gradient_checkpointing": False}
STANDARD |= {"per_device_train_batch_size": 2, "seed": 3}
GENERATED = {"num_generations": 2, "max_completion_length": 4, "beta": 0.1}
CLOSE = {"rtol": 1e-4, "atol": 1e-4}

PROMPTS = ["she saw", "in the cold night the"]
ANSWERS, OTHERS = [" a white bird .", " old king"], [" snow", " rain !"]
ROWS: dict[str, dict[str, list[Any]]] = {
    "texts": {"text": ["she saw a white bird .", "rain !"]},
    "preferences": {"prompt": PROMPTS, "chosen": ANSWERS, "rejected": OTHERS},
    "judged": {"prompt": PROMPTS, "completion": ANSWERS, "label": [True, False]},
    "prompts": {"prompt": PROMPTS},
}


def count_words(completions, **kwargs) -> list[float]:
    """Reward texts for their lengths."""
    return [float(len(text)) for text in completions]


TRAINERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "SFT": ("texts", {}, {}),
    "DPO": ("preferences", {}, {}),
    "KTO": ("judged", {}, {}),
    "Reward": ("preferences", {}, {}),
    "GRPO": ("prompts", GENERATED, {"reward_funcs": count_words}),
    "RLOO": ("prompts", GENERATED, {"reward_funcs": count_words}),
    "Distillation": ("prompts", {"max_completion_length": 4}, {}),
}
"""The beginning of each trainer's name: its rows, and the arguments of its own."""


@pytest.fixture
def folders(build, writer, tmp_path) -> Callable[[str], list[Path]]:
    """Write a decoder and the stock model that it is, for a trainer, each with its tokenizer."""

    def write(name: str) -> list[Path]:
        kind = {"Reward": TercetDecoderForSequenceClassification}.get(name, "decoder")
        model = build(kind, classifier_pooling="last", **({"num_labels": 1} if name == "Reward" else {}))
        found = [tmp_path / "ours", tmp_path / "stock"]
        for folder, each in zip(found, (model, to_stock(model)), strict=True):
            each.save_pretrained(folder)
            writer.save_pretrained(folder)
        return found

    return write


@pytest.fixture
def train(folders, writer, tmp_path):
    """Let a trainer take one step, from a folder or a model; give what it has learned."""

    def train(name: str, model: Path | PreTrainedModel) -> tuple[PreTrainedModel, float]:
        rows, options, extra = TRAINERS[name]
        config = getattr(trl, f"{name}Config")(output_dir=str(tmp_path / "run"), **STANDARD | options)
        if name == "Distillation":
            extra = {"teacher_model": str(tmp_path / "teacher")}
        trainer = getattr(trl, f"{name}Trainer")(
            model=str(model) if isinstance(model, Path) else model,
            args=config,
            train_dataset=Dataset.from_dict(ROWS[rows]),
            processing_class=writer,
            **extra,
        )
        trainer.train()
        return trainer.model.eval(), trainer.state.log_history[0]["loss"]

    return train


CELLS = [
    pytest.param(name, marks=pytest.mark.ecosystem("trl", f"`{name}Trainer`, by name", member="decoder"))
    for name in TRAINERS
]


@pytest.mark.parametrize("is_loaded", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CELLS)
def test_a_trainer_learns_from_a_folder_what_it_learns_from_the_stock_model(
    name, is_loaded, folders, train, build, writer, tmp_path
):
    """Given the name of a folder, or its model, which a trainer may load again by that name."""
    ours, stock = folders(name)
    if name == "Distillation":
        build("decoder", initializer_range=0.2).save_pretrained(tmp_path / "teacher")
    loader = AutoModelForSequenceClassification if name == "Reward" else AutoModelForCausalLM
    inputs = writer(["she saw a bird", "rain !"], padding=True, return_tensors="pt")
    inputs.pop("token_type_ids", None)
    found, loss = train(name, loader.from_pretrained(ours) if is_loaded else ours)
    expected, stock_loss = train(name, stock)
    with torch.no_grad():
        before = loader.from_pretrained(ours)(**inputs).logits
        after, right = (each(**inputs).logits for each in (found, expected))
    assert loss == pytest.approx(stock_loss, rel=1e-4, abs=1e-5)
    assert_close(after, right, **CLOSE)
    assert (after - before).abs().max() > 1e-2
