"""The model that is saved is the one that was scored: whoever asks it gets the predictions of the run.

That is, `predictions.jsonl` of the run, what `tercet predict` writes of the same rows, and what transformers'
pipelines, its heads and tokenizers, and sentence-transformers give, row by row; also where texts are longer
than `data.max_length`, and for models that are not ours.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    BertTokenizer,
    GPTNeoXTokenizer,
    RobertaTokenizer,
)

from tercet.configs.recipe import parse_recipe
from tercet.finetune.inputs import find_inputs
from tercet.finetune.learning import learn_seed
from tercet.finetune.prediction import predict_file
from tercet.finetune.prepared import prepare
from tercet.finetune.recipe import FineTuningRecipe

from ..corners import corners
from ..stock_models import stock_model
from .conftest import WORDS, write_rows
from .saved_models import ASKED, LENGTH, LENGTHS, TASKS, Row, rows_of

OURS, STOCK = ("encoder", "decoder", "seq2seq"), ("bert", "neox", "bart")
MEMBER = dict(zip(STOCK, OURS, strict=True))
ABLE = {"ranking": ("encoder", "decoder"), "generation": ("seq2seq",), "chat": ("decoder",)}
"""What a task is called -> the members that have its head, if not all have."""

CHOSEN = {
    ("classification", "bert"),
    ("pairs", "neox"),
    ("alike", "decoder"),
    ("tagging", "encoder"),
    ("question_answering", "decoder"),
    ("multiple_choice", "decoder"),
    ("ranking", "encoder"),
    ("generation", "bart"),
    ("chat", "decoder"),
}
CLOSE = {"rel": 1e-4, "abs": 2e-5}


@pytest.fixture(scope="session")
def models_of_all(bases, tmp_path_factory) -> dict[str, Path]:
    """Return a tiny model of every member, and a stock one, each with its tokenizer."""
    folder = tmp_path_factory.mktemp("stock")
    torch.manual_seed(0)
    vocab, merges = byte_pairs()
    tokenizers = {
        "bert": BertTokenizer(vocab=numbered(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces()])),
        "neox": GPTNeoXTokenizer(vocab=vocab, merges=merges),
        "bart": RobertaTokenizer(vocab=vocab, merges=merges),
    }
    made = {}
    for name, tokenizer in tokenizers.items():
        ids = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
        if name == "bart":
            end = tokenizer.eos_token_id
            ids |= {
                "bos_token_id": tokenizer.bos_token_id,
                "eos_token_id": end,
                "decoder_start_token_id": end,
            }
            ids |= {"max_position_embeddings": 64, "init_std": 0.3}
        made[name] = stock_model(name, **ids), tokenizer
    made["bart"][0].generation_config.update(num_beams=3, no_repeat_ngram_size=2, max_length=50)
    for name, (model, tokenizer) in made.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return {name: bases / name for name in OURS} | {name: folder / name for name in STOCK}


def numbered(tokens: list[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def pieces() -> list[str]:
    letters = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]
    return [*WORDS, *(letter for letter in letters if letter != "a"), *(f"##{letter}" for letter in letters)]


def byte_pairs() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Learn a vocabulary of bytes with the special tokens of two stock tokenizers."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>", "<|padding|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([" ".join(WORDS)] * 20, trainer)
    told = json.loads(backend.to_str())["model"]
    return told["vocab"], [tuple(merge) for merge in told["merges"]]


def trained(model: Path, name: str, folder: Path) -> tuple[Path, list[Row], list[Row]]:
    """Fine-tune a model for a task; give the saved one, held-out rows, and the run's predictions of them."""
    rows = rows_of(name, 9, 1)
    files = {
        "train": str(write_rows(folder / "train.jsonl", rows_of(name, 24, 0))),
        "validation": str(write_rows(folder / "validation.jsonl", rows)),
    }
    length = {} if name == "chat" else {"max_length": LENGTHS.get(name, LENGTH)}
    data = {
        "model": {"path": str(model)},
        "task": {"kind": name} | TASKS[name],
        "data": files | length,
        "training": {"epochs": 4, "batch_size": 8, "learning_rate": 5e-3, "precision": "fp32"},
        "output": str(folder / "run"),
    }
    inputs = find_inputs(parse_recipe(FineTuningRecipe, data))
    prepared = prepare(inputs)
    learn_seed(inputs.settings[0], prepared.task, prepared.splits, folder / "run", 0, resume=False)
    return folder / "run/model", rows, read(folder / "run/predictions.jsonl")


def read(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.mark.filterwarnings("ignore:.*they are truncated", "ignore:.*do not fit into any window")
@pytest.mark.parametrize(
    ("name", "base"),
    corners(TASKS, (*OURS, *STOCK), keep=lambda name, base: (name, base) in CHOSEN),
)
def test_whoever_asks_a_saved_model_gets_the_predictions_of_its_run(name, base, models_of_all, tmp_path):
    if MEMBER.get(base, base) not in ABLE.get(name, OURS):
        pytest.skip("the member has no such head")
    if name == "ranking":
        pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    folder, rows, scored = trained(models_of_all[base], name, tmp_path)
    asked = tmp_path / "asked.jsonl"
    assert predict_file(str(folder), str(tmp_path / "validation.jsonl"), str(asked)) == len(rows)
    predicted = read(asked)
    others = ASKED[name](folder, rows, TASKS[name])
    for run, ours, theirs in zip(scored, predicted, others, strict=True):
        require_same(run, ours)
        require_same(ours, theirs)
    if name == "ranking":  # a run searches with the vectors that are predicted
        nearest = ASKED[name](folder, [{"query": run["ranked"][0]} for run in scored], TASKS[name])
        for run, query, document in zip(scored, predicted, nearest, strict=True):
            expected = np.dot(query["embedding"], document["embedding"])
            assert run["similarities"][0] == pytest.approx(expected, **CLOSE)
    told = json.loads((folder / "task.json").read_text())["facts"]["max_length"]
    assert told == AutoTokenizer.from_pretrained(folder).model_max_length


def require_same(one: Any, other: Any) -> None:
    """Compare what two ways of asking have in common."""
    if isinstance(other, list):  # labels of words, where a word has a token
        *_, own = one.values()
        assert all(label in (None, found) for found, label in zip(own, other, strict=True))
        return
    flat, expected = flattened(one), flattened(other)
    common = flat.keys() & expected.keys()
    assert common or "embedding" in str(other), (one, other)
    for key in common:
        value = expected[key]
        assert flat[key] == (pytest.approx(value, **CLOSE) if isinstance(value, float) else value)


def flattened(prediction: Row) -> Row:
    """Lay out a prediction: scores by their labels, and what else there is by its name."""
    scores = prediction.get("scores", {})
    if isinstance(scores, list):
        scores = {str(place): score for place, score in enumerate(scores)}
    vector = {f"[{place}]": value for place, value in enumerate(prediction.get("embedding", []))}
    rest = {key: value for key, value in prediction.items() if key not in ("scores", "embedding")}
    return rest | scores | vector
