"""Tiny models of all members with their tokenizers, and a few rows of every kind of task."""

import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tercet.configs.recipe import parse_recipe
from tercet.data.steps.batches import StepDataset
from tercet.data.tokenizers.tokenizer import ANGLES, KINDS, train_tokenizer
from tercet.finetune.encoding import LabelledExamples
from tercet.finetune.recipe import FineTuningRecipe
from tercet.finetune.splits import SplitRows, find_task, read_splits
from tercet.finetune.tasks.task import Task

from ..pretraining.conftest import TINY, unread_recipe
from ..pretraining_parts import model_of

WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "fish",
    "tree",
    "sat",
    "ran",
    "ate",
    "saw",
    "under",
    "over",
    "big",
    "small",
]
MEMBERS = {
    "encoder": ("masked_language_modeling_with_next_sentence", "wordpiece"),
    "decoder": ("causal_language_modeling", "byte_bpe"),
    "seq2seq": ("denoising", "unigram"),
}
"""Of every member, an objective that it learns and a kind of tokenizer."""


@pytest.fixture(scope="session")
def bases(tmp_path_factory) -> Path:
    """Write a tiny model of every member with its tokenizer, untrained: `bases / "encoder"`, ..."""
    folder = tmp_path_factory.mktemp("bases")
    for member, (objective, kind) in MEMBERS.items():
        recipe = unread_recipe(objective, {"preset": f"{member}-tiny", "overrides": TINY}, 64)
        template = recipe.objective.template
        tokenizer = train_tokenizer([" ".join(WORDS)] * 20, kind, 300, template=template)
        tokenizer.save_pretrained(folder / member)
        model_of(recipe, tokenizer).save_pretrained(folder / member)
    return folder


def sentences(count: int, seed: int) -> list[list[str]]:
    """Draw sentences of three to nine words."""
    draw = random.Random(seed)
    return [draw.choices(WORDS, k=draw.randint(3, 9)) for _ in range(count)]


def classification_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Label sentences by their first animal."""
    rows = [(words, next((word for word in words if word in ("cat", "dog", "fish")), "none"))
            for words in sentences(count, seed)]  # fmt: skip
    return [{"text": " ".join(words), "label": label} for words, label in rows]


def multi_label_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Label sentences by all their animals."""
    return [
        {"text": " ".join(words), "labels": sorted({*words} & {"cat", "dog", "fish"})}
        for words in sentences(count, seed)
    ]


def regression_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Count the words of sentences."""
    return [{"text": " ".join(words), "score": len(words) / 4} for words in sentences(count, seed)]


def tagging_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Mark animals with the word before them."""
    rows = []
    for words in sentences(count, seed):
        tags = ["O"] * len(words)
        for place, word in enumerate(words):
            if word in ("cat", "dog"):
                tags[place] = "B-ANIMAL"
            elif word == "tree":
                tags[place] = "I-PLANT" if place and tags[place - 1].endswith("PLANT") else "B-PLANT"
        rows.append({"tokens": words, "tags": tags})
    return rows


def ranking_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Ask for sentences in a cipher: each word is replaced by another one."""
    cipher = dict(zip(WORDS, [*WORDS[5:], *WORDS[:5]], strict=True))
    return [
        {"query": " ".join(map(cipher.__getitem__, words)), "positive": " ".join(words)}
        for words in sentences(count, seed)
    ]


def multiple_choice_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Ask which of two sentences ends as another one does."""
    draw, rows = random.Random(seed), []
    for _ in range(count):
        words, right, wrong = (draw.choices(WORDS, k=draw.randint(1, 2)) for _ in range(3))
        last, other = draw.sample(WORDS, 2)
        choices = [" ".join([*right, last]), " ".join([*wrong, other])]
        gold = draw.randint(0, 1)
        query = " ".join([*words, last])
        rows.append({"query": query, "choices": choices[::-1] if gold else choices, "gold": gold})
    return rows


def question_answering_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Ask for the word behind another one, in a text where each occurs once, if it occurs."""
    draw, rows = random.Random(seed), []
    for _ in range(count):
        words = draw.sample(WORDS, draw.randint(4, 9))
        asked = draw.choice([*words[:-1], draw.choice([word for word in WORDS if word not in words])])
        before = words[: words.index(asked) + 1] if asked in words else []
        answer = [words[len(before)]] if before else []
        begin = [len(" ".join(before)) + 1 for _ in answer]
        answers = {"text": answer, "answer_start": begin}
        rows.append({"question": asked, "context": " ".join(words), "answers": answers})
    return rows


ROWS: dict[str, Callable[[int, int], list[dict[str, Any]]]] = {
    "classification": classification_rows,
    "multi_label": multi_label_rows,
    "regression": regression_rows,
    "tagging": tagging_rows,
    "ranking": ranking_rows,
    "multiple_choice": multiple_choice_rows,
    "question_answering": question_answering_rows,
}
"""Kind of a task -> makes rows that can be learned."""


def write_rows(file: Path, rows: Sequence[dict[str, Any]]) -> Path:
    file.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
    return file


def recipe_in(
    folder: Path, bases: Path, kind: str, member: str = "encoder", count: int = 16, **parts: Any
) -> FineTuningRecipe:
    """Make a recipe of a kind of task and a member, on a few rows that are written into a folder."""
    train = write_rows(folder / "train.jsonl", ROWS[kind](count, 0))
    held_out = write_rows(folder / "validation.jsonl", ROWS[kind](max(count // 2, 8), 1))
    data = {
        "model": {"path": str(bases / member)} | parts.pop("model", {}),
        "task": {"kind": kind} | parts.pop("task", {}),
        "data": {"train": str(train), "validation": str(held_out)} | parts.pop("data", {}),
        "training": {"epochs": 2, "batch_size": 4, "precision": "fp32"} | parts.pop("training", {}),
        "output": str(folder / "run"),
    }
    return parse_recipe(FineTuningRecipe, data | parts)


@pytest.fixture
def recipe_of(bases, tmp_path) -> Callable[..., FineTuningRecipe]:
    """Make recipes in a folder of the test."""
    return partial(recipe_in, tmp_path, bases)


def sums_of_step(
    model: Any, objective: Any, examples: LabelledExamples, limit: int, num_processes: int = 1
) -> tuple[float, int, int]:
    """Sum the losses of a step's micro-batches in all processes; count their targets, and the batches."""
    steps = [
        StepDataset(
            examples, objective, tokens_per_step=int(examples.lengths.sum()), tokens_per_micro_batch=limit,
            seed=1, num_processes=num_processes, process_index=index,
        )[0, 0]
        for index in range(num_processes)
    ]  # fmt: skip
    batches = [batch for step in steps for batch in step.micro_batches(torch.device("cpu"))]
    [term] = steps[0].targets
    targets = sum(step.targets[term] for step in steps)
    assert sum(int(objective.targets(batch)[term]) for batch in batches) == targets
    return sum(objective.losses(model, batch)[term].item() for batch in batches), targets, len(batches)


PAGE = [
    "The house is old, but its doors are new and its windows are clean.",
    "Nobody lives in the old house; everybody lives in the new houses.",
    "e\u0301 中文 \U0001f600\U0001f468\u200d\U0001f469 שלום a b c d x y z",
] * 4
"""What the tokenizers of `families` know."""


@pytest.fixture(scope="session")
def families() -> dict[str, PreTrainedTokenizerFast]:
    """Train a small tokenizer of every family, by its name."""
    ours = {kind: train_tokenizer(PAGE, kind, 600, lowercase=False) for kind in KINDS}
    return ours | {
        "uncased": train_tokenizer(PAGE, "wordpiece", 400, lowercase=True),
        "ended": train_tokenizer(PAGE, "unigram", 400, template="end"),
        "roberta": roberta_like(trim_offsets=True),
        "untrimmed": roberta_like(trim_offsets=False),
        "llama": llama_like(),
    }


def roberta_like(*, trim_offsets: bool) -> PreTrainedTokenizerFast:
    """Make a byte-level tokenizer that frames as RoBERTa's does."""
    tokenizer = train_tokenizer(PAGE, "byte_bpe", 400)
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    opening, closing = ((token, backend.token_to_id(token)) for token in ("<s>", "</s>"))
    backend.post_processor = processors.RobertaProcessing(closing, opening, trim_offsets=trim_offsets)
    return wrapped(backend)


def llama_like() -> PreTrainedTokenizerFast:
    """Make one that knows no words: spaces are characters like others, unknown ones fall back to bytes."""
    backend = Tokenizer(models.BPE(byte_fallback=True, unk_token=ANGLES.unknown, fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokens = [*ANGLES.names(), *(f"<0x{byte:02X}>" for byte in range(256))]
    backend.train_from_iterator(
        PAGE, trainers.BpeTrainer(vocab_size=700, special_tokens=tokens, show_progress=False)
    )
    opening = (ANGLES.opening, backend.token_to_id(ANGLES.opening))
    frames = f"{opening[0]} $A", f"{opening[0]} $A {opening[0]}:1 $B:1"
    backend.post_processor = processors.TemplateProcessing(*frames, [opening])
    return wrapped(backend)


def wrapped(backend: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=backend, **ANGLES.roles())


def splits_of(recipe: FineTuningRecipe) -> SplitRows:
    return read_splits(recipe.data, recipe.task.build())


def found_task(recipe: FineTuningRecipe) -> Task:
    return find_task(recipe.task.build(), splits_of(recipe))
