"""The examples about what generators write run on small models, and draw their pictures."""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
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


def run(name: str, monkeypatch, *arguments: object) -> None:
    """Run a program of `examples/` in this process."""
    spec = spec_from_file_location(name, Path(__file__).parents[1] / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    module.main()


def test_exposure_bias_of_a_translator_and_of_a_decoder(folder, tmp_path, monkeypatch, capsys):
    picture = tmp_path / "exposure.png"
    run(
        "exposure_bias",
        monkeypatch,
        folder / "recurrent",
        "--pairs",
        folder / "pairs.jsonl",
        "--picture",
        picture,
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    picture.unlink()
    run(
        "exposure_bias", monkeypatch, folder / "decoder", "--text", folder / "text.txt", "--picture", picture,
        "--context=6", "--length=5",
    )  # fmt: skip
    assert picture.exists()
    assert capsys.readouterr().out.count("at the same place") == 2


def test_bleu_by_length_of_a_translator(folder, tmp_path, monkeypatch, capsys):
    picture = tmp_path / "lengths.png"
    run(
        "bleu_by_length",
        monkeypatch,
        folder / "recurrent",
        folder / "pairs.jsonl",
        "--groups=2",
        "--picture",
        picture,
    )
    assert picture.exists()
    assert capsys.readouterr().out.count("rows: BLEU") == 2


def test_word_vectors_are_read_from_a_file(tmp_path, monkeypatch, capsys):
    names = ["bank", "Paris", "walking", "the", "a", "in", "of", "to"]
    lines = "".join(f"{name} {number} {number * number} 1\n" for number, name in enumerate(names, start=1))
    (tmp_path / "vectors.txt").write_text(lines)
    run("train_word_vectors", monkeypatch, tmp_path / "vectors.txt", tmp_path / "model", "--ready")
    assert (tmp_path / "model" / "model.safetensors").exists()
    assert "8 words, 3 numbers each" in capsys.readouterr().out


def test_few_words_have_few_neighbours_and_unknown_words_none(tmp_path, monkeypatch, capsys):
    (tmp_path / "vectors.txt").write_text("bank 1 0\nparis 0 1\nriver 2 1\n")
    run("train_word_vectors", monkeypatch, tmp_path / "vectors.txt", tmp_path / "model", "--ready")
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  bank: river, paris",
        "  Paris: paris, river, bank",
        "  walking: unknown, it has no vector",
        "  unhappyish: unknown, it has no vector",
    ]
