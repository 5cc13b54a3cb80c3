"""Each example runs, on small models and little text, and says what it is for."""

import json
import random
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

import tercet

EXAMPLES = sorted((Path(__file__).parents[3] / "lab/examples").glob("*.py"))
LONGEST = 80
"""Lines."""

SIZES = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "max_position_embeddings": 256,
}
SMALL = (
    f"model.overrides={json.dumps(SIZES)}",
    "tokenizer.vocab_size=300",
    "training.steps=2",
    "training.tokens_per_step=512",
    "training.measure_utilization=false",
    "corpus.cache=cache",
)
TEXT = ("corpus.train=train.txt", "corpus.validation=validation.txt", "corpus.sequence_length=32")


def load_example(name: str) -> ModuleType:
    """Load an example as a module."""
    file = next(file for file in EXAMPLES if file.stem == name)
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make a folder with a little text the current one."""
    draw, words = random.Random(0), ["the", "cat", "sat", "under", "a", "big", "tree"]
    for name, size in (("train", 40), ("validation", 12)):
        texts = (" ".join(draw.choices(words, k=30)) for _ in range(size))
        (tmp_path / f"{name}.txt").write_text("\n\n".join(texts))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_short(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LONGEST


def test_a_pretrained_model_is_distilled_into_a_classifier(folder, capsys):
    run = tercet.pretrain("decoder-demo", *SMALL, *TEXT, output="runs/pretrained")
    capsys.readouterr()
    rows = [f"{text},{label}" for text, label in (("the cat", "animal"), ("a big tree", "plant"))] * 20
    (folder / "rows.csv").write_text("text,label\n" + "\n".join(rows))
    load_example("finetune_and_distill").main("rows.csv", str(run.model_path), ["training.epochs=1"])
    told = capsys.readouterr().out
    assert told.startswith("teacher: accuracy ")
    assert "\nstudent: share kept: " in told
    assert told.splitlines()[-1].partition(": ")[::2] in [(label, "the cat") for label in ("animal", "plant")]


def test_a_decoder_is_asked_for_what_it_read_in_its_prompt(folder, capsys, monkeypatch):
    example = load_example("learn_in_context")
    write, draw = example.write_text, example.draw_rows
    monkeypatch.setattr(example, "write_text", lambda file, worlds, seed: write(file, min(worlds, 40), seed))
    monkeypatch.setattr(example, "draw_rows", lambda worlds, seed: draw(2, seed)[:60])
    assert example.main(SMALL) == 0
    assert "K = 32: " in capsys.readouterr().out


def test_an_own_attention_pattern_is_a_type_of_layer(folder, capsys):
    example = load_example("own_attention_pattern")
    example.main([*SMALL, *TEXT])
    full, dilated = capsys.readouterr().out.splitlines()
    assert full.startswith("full: perplexity ")
    assert dilated.startswith("dilated below: perplexity ")
    config = json.loads((folder / "runs/own-pattern/dilated-below/model/config.json").read_text())
    assert config["layer_types"] == example.LAYERS["dilated below"]


@pytest.fixture
def run_word_vectors(monkeypatch, capsys):
    """Run the program on a file of vectors; return what it prints."""

    def run(*arguments: object) -> str:
        monkeypatch.setattr("sys.argv", ["train_word_vectors", *map(str, arguments)])
        load_example("train_word_vectors").main()
        return capsys.readouterr().out

    return run


def test_word_vectors_are_read_from_a_file(tmp_path, run_word_vectors):
    names = ["bank", "Paris", "walking", "the", "a", "in", "of", "to"]
    lines = "".join(f"{name} {number} {number * number} 1\n" for number, name in enumerate(names, start=1))
    (tmp_path / "vectors.txt").write_text(lines)
    told = run_word_vectors(tmp_path / "vectors.txt", tmp_path / "model", "--ready")
    assert (tmp_path / "model" / "model.safetensors").exists()
    assert "8 words, 3 numbers each" in told


def test_few_words_have_few_neighbours_and_unknown_words_none(tmp_path, run_word_vectors):
    (tmp_path / "vectors.txt").write_text("bank 1 0\nparis 0 1\nriver 2 1\n")
    told = run_word_vectors(tmp_path / "vectors.txt", tmp_path / "model", "--ready")
    assert told.splitlines()[1:] == [
        "  bank: river, paris",
        "  Paris: paris, river, bank",
        "  walking: unknown, it has no vector",
        "  unhappyish: unknown, it has no vector",
    ]
