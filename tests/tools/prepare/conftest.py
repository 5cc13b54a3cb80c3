"""A text in three formats, a tokenizer, and the recipe that prepares the one with the other."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow.parquet import write_table
from transformers import PreTrainedTokenizerBase

from tercet.data.tokenizers.tokenizer import load_tokenizer, train_tokenizer


def write_documents(number: int) -> list[str]:
    """Make documents of some sentences each, ragged and without a word twice in a row."""
    rng = random.Random(0)
    words = [f"{start}{end}" for start in "bdfghklmn" for end in ("ale", "ore", "ity", "ung", "eed", "ock")]

    def sentence() -> str:
        return " ".join(rng.sample(words, rng.randint(3, 12))).capitalize() + "."

    return [" ".join(sentence() for _ in range(rng.randint(1, 6))) for _ in range(number)]


DOCUMENTS = write_documents(240)


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> Path:
    """A folder with the documents, in the order of its files."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "a.txt").write_text("\n\n".join(DOCUMENTS[:140]))
    (folder / "b.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS[140:200]))
    write_table(pyarrow.table({"text": DOCUMENTS[200:]}), folder / "c.parquet")
    return folder


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(DOCUMENTS, "wordpiece", 200).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tokenizer(tokenizer_folder) -> PreTrainedTokenizerBase:
    return load_tokenizer(str(tokenizer_folder))


@pytest.fixture
def described(texts, tokenizer_folder, tmp_path, monkeypatch) -> Callable[..., dict[str, Any]]:
    """Describe a preparation into a folder of a name, of shards of some thousand bytes."""
    monkeypatch.setenv("TERCET_CACHE", str(tmp_path / "cache"))

    def described(name: str = "prepared", corpus: Any = None, **keys: Any) -> dict[str, Any]:
        text = {"path": str(texts), "shard_bytes": 8000} | (corpus or {})
        return {"corpus": text, "tokenizer": str(tokenizer_folder), "output": str(tmp_path / name)} | keys

    return described
