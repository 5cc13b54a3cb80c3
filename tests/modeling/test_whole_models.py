"""No command works with a model that is not whole: all say in one line which tensor it lacks."""

import json
import shutil

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file

from tercet import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetDecoderForSequenceClassification,
)
from tercet.__main__ import main
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.finetune.tasks.task import build_task, keep_task
from tercet.finetune.tasks.texts import ClassificationRecipe
from tercet.tools.play.loaded_model import load_model
from tercet.tools.play.sessions import abilities_of

TEXT = "the cat sat under the big tree and saw a fish"
TENSOR = "model.layers.1.feed_forward.up_proj.weight"
SMALL = ["corpus.train=text.txt", "corpus.validation=text.txt", "corpus.sequence_length=32"]
SMALL += ["training.steps=1", "training.schedule={}", "output=run"]

COMMANDS = {
    "pretrain": ["decoder-demo", "model={path: MODEL}", "tokenizer.path=MODEL", *SMALL],
    "finetune": ["text-classification", "model.path=MODEL", "data.train=rows.csv", "output=run"],
    "finetune (tagger)": [
        "conll2003-tagger",
        "model.path=MODEL",
        "model.tagger.beside=[]",
        "data={train: tags.jsonl}",
        "task.tags=tags",
        "output=run",
    ],
    "distill": [
        "decoder-distilled",
        "general.teacher=MODEL",
        *(f"general.{each}" for each in SMALL[:-1]),
        "output=run",
    ],
    "fewshot": [
        "copa",
        "--model",
        "MODEL",
        "task={kind: multiple_choice, context: '{{ context }}', choices: choices, target: target}",
        "data={test: choices.jsonl}",
        "output=run",
    ],
    "predict": ["MODEL", "rows.csv"],
    "play": ["MODEL"],
    "convert": ["MODEL", "--to", "encoder", "--output", "converted"],
    "export": ["MODEL", "exported"],
    "push": ["MODEL", "me/model", "--dry-run"],
    "inspect": ["MODEL", "a text", "--output", "page.html"],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write a decoder that lacks a tensor, and small files of all kinds."""
    folder = tmp_path_factory.mktemp("files")
    torch.manual_seed(0)
    tokenizer = train_tokenizer([TEXT] * 20, "byte_bpe", 280, template="plain")
    config = TercetDecoderConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=48,
        num_hidden_layers=2,
        max_position_embeddings=64,
    )
    TercetDecoderForCausalLM(config).save_pretrained(folder / "decoder")
    tokenizer.save_pretrained(folder / "decoder")
    (folder / "text.txt").write_text(f"{TEXT}.\n\n" * 30)
    (folder / "rows.csv").write_text("text,label\n" + f"{TEXT},a\n{TEXT},b\n" * 20)
    lines = {
        "tags.jsonl": {"tokens": TEXT.split(), "tags": ["O", "B-X"] + ["O"] * 9},
        "choices.jsonl": {"context": TEXT, "choices": ["a cat", "a dog"], "target": 0},
    }
    for name, line in lines.items():
        (folder / name).write_text(f"{json.dumps(line)}\n" * 20)
    tensors = load_file(folder / "decoder" / "model.safetensors")
    del tensors[TENSOR]
    save_file(tensors, folder / "decoder" / "model.safetensors", {"format": "pt"})
    rows = Dataset.from_dict({"text": [TEXT] * 4, "label": ["a", "b"] * 2})
    keep_task(build_task(ClassificationRecipe("classification"), rows), folder / "decoder", 64)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_fills_in_what_a_model_lacks(name, files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    arguments = [each.replace("MODEL", str(files / "decoder")) for each in COMMANDS[name]]
    assert main([name.partition(" ")[0], *arguments]) == 2
    *_, line = capsys.readouterr().err.strip().splitlines()
    assert f"{files / 'decoder' / 'model.safetensors'} lacks 1 tensor ({TENSOR}) of TercetDecoderFor" in line
    for left in ("run/model", "converted", "exported", "predictions.jsonl", "page.html"):
        assert not (files / left).exists()


def test_the_doctor_says_what_a_model_lacks(files, capsys):
    with pytest.raises(SystemExit):
        main(["doctor", str(files / "decoder")])
    told = " ".join(capsys.readouterr().out.split())
    assert f"missing in the file, so initialized randomly: {TENSOR}" in told


@pytest.fixture
def overflowing(files, tmp_path):
    """Write a classifier of finite weights whose results are no numbers."""
    config = TercetDecoderConfig.from_pretrained(files / "decoder", id2label={0: "a", 1: "b"})
    model = TercetDecoderForSequenceClassification(config)
    with torch.no_grad():
        model.model.norm.weight.fill_(3e38)
        for parameter in model.classifier.parameters():
            parameter.fill_(10)
    model.save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "task.json"):
        shutil.copy(files / "decoder" / name, tmp_path / name)
    return tmp_path


def test_results_that_are_no_numbers_are_no_predictions(overflowing, files, capsys):
    arguments = [str(overflowing), str(files / "rows.csv"), "--output", str(files / "overflown.jsonl")]
    assert main(["predict", *arguments]) == 2
    *_, line = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("tercet predict: the model computes what is no number")


def test_results_that_are_no_numbers_are_not_shown(overflowing):
    classify, *_ = abilities_of(load_model(str(overflowing))).values()
    with pytest.raises(ValueError, match="the model computes what is no number"):
        classify.run(TEXT, top=2)
