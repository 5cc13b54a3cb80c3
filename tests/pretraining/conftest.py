"""Recipes on a page of text, ragged and tiny, for runs in processes of their own."""

import json
import random
from pathlib import Path

import pytest
import yaml

from tercet.configs.recipe import parse_recipe
from tercet.pretraining.recipe import PretrainingRecipe

WORDS = ["the", "a", "cat", "dog", "fish", "tree", "sat", "ran", "ate", "saw", "under", "over", "big", "and"]
OBJECTIVES = {
    "masked_language_modeling_with_next_sentence": ("encoder-tiny", "characters", {}),
    "causal_language_modeling": ("decoder-tiny", "byte_bpe", {}),
    "translation": ("seq2seq-tiny", "characters", {"label_smoothing": 0.1}),
}
"""Of each member, an objective with its preset, tokenizer and settings."""

TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}


@pytest.fixture(scope="session")
def ragged_texts(tmp_path_factory) -> Path:
    """Write documents of sentences of two to nine words, and pairs of a sentence and its reverse."""
    folder, draw = tmp_path_factory.mktemp("ragged"), random.Random(0)
    for name, size in (("train", 40), ("validation", 8)):
        lines = [
            [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))) + "." for _ in range(5)] for _ in range(size)
        ]
        (folder / f"{name}.txt").write_text("\n\n".join(map("\n".join, lines)))
        pairs = [{"left": line, "right": line[::-1]} for document in lines for line in document]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    return folder


@pytest.fixture
def recipe_on(ragged_texts, tmp_path):
    """Write a recipe with a tiny model; give it and the path of its file."""

    def recipe_on(kind: str, name: str = "run", dropout: float = 0.0, **training):
        preset, tokenizer, settings = OBJECTIVES[kind]
        ending = "jsonl" if kind == "translation" else "txt"
        columns = {"source_column": "left", "target_column": "right"} if kind == "translation" else {}
        data = {
            "model": {"preset": preset, "overrides": TINY | {"dropout": dropout}},
            "tokenizer": {"kind": tokenizer, "vocab_size": 400},
            "corpus": {
                "train": str(ragged_texts / f"train.{ending}"),
                "validation": str(ragged_texts / f"validation.{ending}"),
                "sequence_length": 64,
                "cache": str(ragged_texts / "cache"),
            }
            | columns,
            "objective": {"kind": kind} | settings,
            "training": {"steps": 4, "tokens_per_step": 512, "measure_utilization": False, "log_every": 1}
            | training,
            "output": str(tmp_path / name),
        }
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(data))
        return parse_recipe(PretrainingRecipe, data), file

    return recipe_on


PRESETS = {
    "masked_language_modeling": ("encoder-tiny", "wordpiece"),
    "masked_language_modeling_with_next_sentence": ("encoder-tiny", "characters"),
    "causal_language_modeling": ("decoder-tiny", "byte_bpe"),
    "translation": ("seq2seq-tiny", "characters"),
    "span_corruption": ("seq2seq-tiny", "unigram"),
    "denoising": ("seq2seq-tiny", "byte_bpe"),
}
"""Of every objective, a preset and a tokenizer."""


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """Write documents of a few sentences, and pairs of a sentence and its reverse."""
    folder, draw = tmp_path_factory.mktemp("texts"), random.Random(0)
    for name, size in (("train", 60), ("validation", 12)):
        sentences = [[" ".join(draw.choices(WORDS, k=6)) + "." for _ in range(5)] for _ in range(size)]
        (folder / f"{name}.txt").write_text("\n\n".join(map("\n".join, sentences)))
        pairs = [{"left": line, "right": line[::-1]} for lines in sentences for line in lines]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    return folder


def make_recipe(kind, texts, output, **training) -> PretrainingRecipe:
    """Make a recipe of two steps with a tiny model."""
    preset, tokenizer = PRESETS[kind]
    ending = "jsonl" if kind == "translation" else "txt"
    columns = {"source_column": "left", "target_column": "right"} if kind == "translation" else {}
    return parse_recipe(
        PretrainingRecipe,
        {
            "model": {"preset": preset, "overrides": TINY},
            "tokenizer": {"kind": tokenizer, "vocab_size": 400},
            "corpus": {
                "train": str(texts / f"train.{ending}"),
                "validation": str(texts / f"validation.{ending}"),
                "sequence_length": 64,
                "cache": str(texts / "cache"),
            }
            | columns,
            "objective": {"kind": kind},
            "training": {"steps": 2, "tokens_per_step": 512, "measure_utilization": False} | training,
            "output": str(output),
        },
    )


@pytest.fixture
def recipe_of():
    """Give the function that makes recipes of two steps."""
    return make_recipe
