"""Tiny models of all members, ours and stock ones, with tokenizers of all families, in folders."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast, RobertaConfig, RobertaForCausalLM

from tercet.configs.recipe import parse_recipe
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.fewshot.recipe import FewShotRecipe
from tercet.fewshot.subject import Subject, load_subject
from tercet.modeling import (
    TercetDecoderForCausalLM,
    TercetEncoderForMaskedLM,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.modeling.saved.checkpoint import Checkpoint

from ..stock_models import SIZES, STOCK, stock_model

LINE = """
the a cat dog fish tree sat ran ate saw under over big small because therefore Question Answer yes no
positive negative he she it was were unbelievable houses newspapers 1 12 123 45 plus is what = . , ? :
"""
WORDS = LINE.split()
TEXT = [
    " ".join(WORDS),
    "Question: what is 12 plus 45?\nAnswer: 57\n\nThe unbelievable cat sat.",
] * 20
LENGTH = 192

# Large weights, so that attention is far from uniform and mistakes show.
COMMON: dict[str, Any] = {"max_position_embeddings": LENGTH, "initializer_range": 0.3}
VARIANTS: dict[str, dict[str, Any]] = {
    "learned": {"position_embedding_type": "learned", "norm_type": "layer_norm", "num_key_value_heads": 2},
    "biased": {"position_embedding_type": "relative_bias", "relative_attention_max_distance": 20},
    "sliding": {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 7},
    "eager": {"attn_implementation": "eager"},
    "additive": {"attention_score": "additive"},
}
"""Decoders that read trees in other ways than the plain one, or not at all."""

OF_TOKENIZERS = {
    "decoder": ("byte_bpe", "plain"),
    "seq2seq": ("unigram", "end"),
    "encoder": ("wordpiece", "pair"),
}


@pytest.fixture(autouse=True)
def offline(monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def tokenizer_for(member: str) -> PreTrainedTokenizerFast:
    """Train the kind of tokenizer that a member has most often."""
    kind, template = OF_TOKENIZERS[member]
    return train_tokenizer(TEXT, kind, 400, template=template, sentinels=2, model_max_length=LENGTH)


def build(name: str, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """Build a model by its name, with random weights."""
    torch.manual_seed(0)
    ids: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    starts = {"decoder_start_token_id": tokenizer.eos_token_id}
    if name == "roberta":
        return RobertaForCausalLM(RobertaConfig(**SIZES, **COMMON, **ids, is_decoder=True))
    if name in STOCK:
        more: dict[str, Any] = {
            "llama": COMMON | {"num_key_value_heads": 2},
            "mamba": {},
            "bart": COMMON | {"init_std": 0.3} | starts,
            "t5": starts,
        }
        return stock_model(name, **ids, **more.get(name, COMMON))
    member, _, variant = name.partition("-")
    fields = dict(VARIANTS[variant]) if variant else {}
    kernel = fields.pop("attn_implementation", None)
    model_class: Any = {
        "encoder": TercetEncoderForMaskedLM,
        "decoder": TercetDecoderForCausalLM,
        "seq2seq": TercetSeq2SeqForConditionalGeneration,
    }[member]
    starts = starts if member == "seq2seq" else {}
    model = model_class(model_class.config_class(**SIZES, **COMMON, **ids, **starts, **fields))
    if kernel:
        model.set_attn_implementation(kernel)
    return model


MEMBERS = dict.fromkeys(("gpt2", "lfm2", "llama", "mamba", "roberta"), "decoder")
MEMBERS |= {"bert": "encoder", "bart": "seq2seq", "t5": "seq2seq"}


@pytest.fixture(scope="session")
def saved(tmp_path_factory) -> Callable[[str], Path]:
    """Return the function that saves a tiny model by its name, once, and names the folder."""
    folder, done = tmp_path_factory.mktemp("models"), {}

    def save(name: str) -> Path:
        if name not in done:
            tokenizer = tokenizer_for(MEMBERS.get(name, name.partition("-")[0]))
            done[name] = folder / name
            build(name, tokenizer).save_pretrained(done[name])
            tokenizer.save_pretrained(done[name])
        return done[name]

    return save


@pytest.fixture(scope="session")
def subject(saved) -> Callable[[str], Subject]:
    """Return the function that loads a tiny model to be asked."""
    loaded: dict[str, Subject] = {}

    def load(name: str) -> Subject:
        if name not in loaded:
            base = name.removesuffix("-masked")
            loaded[name] = load_subject(
                Checkpoint.open(str(saved(base))), head="auto" if base == name else "masked_lm"
            )
            if name.endswith("-eager"):
                loaded[name].model.set_attn_implementation("eager")
        return loaded[name]

    return load


def write_rows(file: Path, rows: Sequence[dict[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
    return file


ANIMALS = ["cat", "dog", "fish"]


def rows_of(count=12, seed=0):
    """Make rows with everything that a task may ask for."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        animal, verb = draw.choice(ANIMALS), draw.choice(["sat", "ran", "ate", "saw"])
        text = f"the {draw.choice(['big', 'small'])} {animal} {verb} under {draw.choice(ANIMALS)}"
        row = {"text": text, "label": "yes" if animal == "cat" else "no", "choices": [verb, "houses ran"]}
        row |= {"gold": draw.randint(0, 1), "answer": animal, "contexts": [f"the {each}" for each in ANIMALS]}
        rows.append(row | {"bad": " ".join(text.split()[::-1]), "number": ANIMALS.index(animal)})
    return rows


TASKS = {
    "multiple_choice": {"context": "Question: {{ text }}\nAnswer:", "choices": "choices", "target": "gold"},
    "classification": {
        "kind": "multiple_choice",
        "context": "{{ text }}\nAnswer:",
        "choices": ["positive", "negative"],
        "labels": ["yes", "no"],
        "target": "label",
    },
    "cloze": {
        "text": "{{ text }}, what is ___ .",
        "choices": ["yes", "no", "unbelievable"],
        "target": "'yes' if label == 'yes' else 'no'",
    },
    "partial_evaluation": {"contexts": "contexts", "continuation": "{{ text }}", "target": "number"},
    "minimal_pair": {"good": "{{ text }}", "bad": "{{ bad }}", "group": "label"},
    "completion": {"context": "{{ text }} =", "answer": "{{ answer }}"},
    "generation": {"context": "{{ text }} =", "answers": "{{ answer }}", "max_new_tokens": 6},
    "perplexity": {"text": "{{ text * 12 }}"},
}
WITHOUT_SHOTS = ("minimal_pair", "perplexity")


@pytest.fixture
def recipe_of(tmp_path):
    """Make recipes of a kind of task on a few rows."""

    def make(kind, models, **parts):
        write_rows(tmp_path / "data" / "rows.jsonl", rows_of())
        write_rows(tmp_path / "data" / "shots.jsonl", rows_of(9, 1))
        data = {
            "task": {"kind": kind} | TASKS[kind] | parts.pop("task", {}),
            "data": {
                "test": str(tmp_path / "data" / "rows.jsonl"),
                "demonstrations": str(tmp_path / "data" / "shots.jsonl"),
            }
            | parts.pop("data", {}),
            "prompting": {"num_fewshot": [0] if kind in WITHOUT_SHOTS else [0, 2]}
            | parts.pop("prompting", {}),
            "models": [str(model) for model in models],
            "output": str(tmp_path / "run"),
        }
        return parse_recipe(FewShotRecipe, data | parts)

    return make


def read(folder):
    items = [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]
    return json.loads((folder / "scores.json").read_text()), items
