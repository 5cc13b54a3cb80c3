"""The examples about what generators write run on small models, and draw their pictures."""

import json
import sys
from pathlib import Path

import pytest
import torch

from tercet import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetRecurrentSeq2SeqConfig,
    TercetRecurrentSeq2SeqForConditionalGeneration,
)
from tercet.text.tokenizer import train_tokenizer

from .examples import load_example

TEXTS = ["the cat sat under the big tree", "a dog ran over the small fish in the water"] * 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Write a decoder and a recurrent translator, untrained, and what they read."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    tokenizer = train_tokenizer(TEXTS, "byte_bpe", 300)
    sizes = {
        "vocab_size": 300,
        "hidden_size": 16,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    decoder = TercetDecoderConfig(**sizes, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2)
    for name, model in (
        ("decoder", TercetDecoderForCausalLM(decoder)),
        ("recurrent", TercetRecurrentSeq2SeqForConditionalGeneration(TercetRecurrentSeq2SeqConfig(**sizes))),
    ):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    rows = [{"en": text, "de": text[::-1]} for text in TEXTS]
    (folder / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "text.txt").write_text("\n".join(TEXTS))
    return folder


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a program of `examples/` in this process; return what it prints."""

    def run(name: str, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        load_example(name).main()
        return capsys.readouterr().out

    return run


PICTURES = [
    ("exposure_bias recurrent --pairs pairs.jsonl", "at the same place", 1),
    ("exposure_bias decoder --text text.txt --context=6 --length=5", "at the same place", 1),
    ("bleu_by_length recurrent pairs.jsonl --groups=2", "rows: BLEU", 2),
]


@pytest.mark.parametrize(("command", "told", "times"), PICTURES)
def test_a_program_tells_numbers_and_draws_them(command, told, times, folder, tmp_path, monkeypatch, run):
    monkeypatch.chdir(folder)
    assert run(*command.split(), "--picture", tmp_path / "picture.png").count(told) == times
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_word_vectors_are_read_from_a_file(tmp_path, run):
    names = ["bank", "Paris", "walking", "the", "a", "in", "of", "to"]
    lines = "".join(f"{name} {number} {number * number} 1\n" for number, name in enumerate(names, start=1))
    (tmp_path / "vectors.txt").write_text(lines)
    told = run("train_word_vectors", tmp_path / "vectors.txt", tmp_path / "model", "--ready")
    assert (tmp_path / "model" / "model.safetensors").exists()
    assert "8 words, 3 numbers each" in told


def test_few_words_have_few_neighbours_and_unknown_words_none(tmp_path, run):
    (tmp_path / "vectors.txt").write_text("bank 1 0\nparis 0 1\nriver 2 1\n")
    told = run("train_word_vectors", tmp_path / "vectors.txt", tmp_path / "model", "--ready")
    assert told.splitlines()[1:] == [
        "  bank: river, paris",
        "  Paris: paris, river, bank",
        "  walking: unknown, it has no vector",
        "  unhappyish: unknown, it has no vector",
    ]
