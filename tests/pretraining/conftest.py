"""Recipes on a page of text, ragged and tiny, for runs in processes of their own."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import PreTrainedTokenizerFast

from tercet.configs.recipe import parse_recipe
from tercet.pretraining.recipe import PretrainingRecipe

from ..stock_models import SIZES
from ..word_level import ROLES, SIGNS, word_level

WORDS = ["the", "a", "cat", "dog", "fish", "tree", "sat", "ran", "ate", "saw", "under", "over", "big", "and"]
PRESETS = {
    "masked_language_modeling": ("encoder-tiny", "wordpiece"),
    "masked_language_modeling_with_next_sentence": ("encoder-tiny", "characters"),
    "replaced_token_detection": ("encoder-tiny", "wordpiece"),
    "masked_language_modeling_with_sentence_order": ("encoder-tiny", "wordpiece"),
    "sentence_denoising": ("encoder-tiny", "wordpiece"),
    "causal_language_modeling": ("decoder-tiny", "byte_bpe"),
    "masked_next_token_prediction": ("decoder-tiny", "wordpiece"),
    "hybrid_language_modeling": ("decoder-tiny", "byte_bpe"),
    "fill_in_the_middle": ("decoder-tiny", "byte_bpe"),
    "character_language_modeling": ("character-mini", "characters"),
    "bidirectional_language_modeling": ("elmo-mini", "words"),
    "mixture": ("encoder-tiny", "characters"),
    "translation": ("seq2seq-tiny", "characters"),
    "span_corruption": ("seq2seq-tiny", "unigram"),
    "prefix_language_modeling": ("seq2seq-tiny", "wordpiece"),
    "mixture_of_denoisers": ("seq2seq-tiny", "unigram"),
    "denoising": ("seq2seq-tiny", "byte_bpe"),
}
"""Of every objective, a preset and a tokenizer."""

MASKED = "masked_language_modeling"
OPTIONS = {
    "hybrid_language_modeling": {"causal_share": 0.4},
    "mixture": {
        "objectives": [
            {"share": 1, "objective": {"kind": MASKED, "final_mlm_probability": 0.3}},
            {"share": 1, "objective": {"kind": f"{MASKED}_with_next_sentence"}},
        ]
    },
}
"""What objectives need, and what shares fit small steps."""

TINY = SIZES | {"intermediate_size": 64, "max_position_embeddings": 64}


OVERRIDES = {
    "character_language_modeling": {"hidden_size": 32, "embedding_size": 16, "dropout": 0.0},
    "bidirectional_language_modeling": {
        "hidden_size": 16,
        "lstm_cell_size": 24,
        "character_filters": [[2, 8]],
        "dropout": 0.0,
    },
}
"""What makes models of other members tiny."""


def write_texts(folder: Path, sizes: dict[str, int], words: Callable[[], int]) -> Path:
    """Write documents of five sentences of so many `words`, and pairs of a sentence and its reverse.

    Of a document that is not learned from there are two pairs, since each of them is translated in the end.
    """
    draw = random.Random(0)
    for name, size in sizes.items():
        documents = [[" ".join(draw.choices(WORDS, k=words())) + "." for _ in range(5)] for _ in range(size)]
        (folder / f"{name}.txt").write_text("\n\n".join(map("\n".join, documents)))
        count = 5 if name == "train" else 2
        pairs = [{"left": line, "right": line[::-1]} for lines in documents for line in lines[:count]]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    return folder


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> Path:
    """Write sentences of six words."""
    return write_texts(tmp_path_factory.mktemp("texts"), {"train": 60, "validation": 12}, lambda: 6)


@pytest.fixture(scope="session")
def ragged_texts(tmp_path_factory) -> Path:
    """Write sentences of two to nine words."""
    lengths = random.Random(1)
    sizes = {"train": 40, "validation": 8}
    return write_texts(tmp_path_factory.mktemp("ragged"), sizes, lambda: lengths.randint(2, 9))


def recipe_data_of(kind: str, texts: Path, output: Path, **training) -> dict[str, Any]:
    """Describe a run of two steps with a tiny model."""
    preset, tokenizer = PRESETS[kind]
    ending = "jsonl" if kind == "translation" else "txt"
    columns = {"source_column": "left", "target_column": "right"} if kind == "translation" else {}
    return {
        "model": {"preset": preset, "overrides": OVERRIDES.get(kind, TINY)},
        "tokenizer": {"kind": tokenizer, "vocab_size": 520 if tokenizer == "words" else 400},
        "corpus": {
            "train": str(texts / f"train.{ending}"),
            "validation": str(texts / f"validation.{ending}"),
            "sequence_length": 64,
            "cache": str(texts / "cache"),
        }
        | columns,
        "objective": {"kind": kind} | OPTIONS.get(kind, {}),
        "training": {"steps": 2, "tokens_per_step": 512, "measure_utilization": False} | training,
        "output": str(output),
    }


def unread_data(kind: str, model: dict, sequence_length: int = 32, **changes) -> dict[str, Any]:
    """Describe a run whose text nobody reads."""
    corpus = {"train": "x.txt", "validation": "x.txt", "sequence_length": sequence_length}
    data = {"model": model, "corpus": corpus, "objective": {"kind": kind}, "training": {"steps": 1}}
    return data | {"output": "runs/x"} | changes


def unread_recipe(kind: str, model: dict, sequence_length: int = 32, **changes) -> PretrainingRecipe:
    return parse_recipe(PretrainingRecipe, unread_data(kind, model, sequence_length, **changes))


def changed(recipe: PretrainingRecipe, part: str = "corpus", **fields) -> PretrainingRecipe:
    return replace(recipe, **{part: replace(getattr(recipe, part), **fields)})


@pytest.fixture
def recipe_of():
    """Give the function that makes recipes of two steps."""

    def recipe_of(kind: str, texts: Path, output: Path, **training) -> PretrainingRecipe:
        return parse_recipe(PretrainingRecipe, recipe_data_of(kind, texts, output, **training))

    return recipe_of


@pytest.fixture
def recipe_on(ragged_texts, tmp_path):
    """Write a recipe of four steps on ragged texts; give it and the path of its file."""

    def recipe_on(kind: str, name: str = "run", dropout: float = 0.0, objective=None, model=None, **training):
        data = recipe_data_of(
            kind, ragged_texts, tmp_path / name, **({"steps": 4, "log_every": 1} | training)
        )
        data["model"] = model or data["model"]
        data["model"]["overrides"] = data["model"]["overrides"] | {"dropout": dropout}
        if kind == "translation":
            data["objective"] = data["objective"] | {"label_smoothing": 0.1}
        data["objective"] = data["objective"] | (objective or {})
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(data))
        return parse_recipe(PretrainingRecipe, data), file

    return recipe_on


@pytest.fixture
def pair_tokenizer() -> PreTrainedTokenizerFast:
    return word_level([*SIGNS, *(f"w{i}" for i in range(50))], **ROLES)
