"""Wrong names, wrong keys and missing models are answered before torch is imported."""

import os
import subprocess
import sys

import pytest

from tercet.__main__ import main
from tercet.configs.recipe import recipe_folders
from tercet.early_checks import KINDS, command_of
from tercet.text.record_files import require_columns_early

WRONG = [
    ("pretrain encoder-dmo", "did you mean encoder-demo"),
    ("pretrain encoder-demo training.stepz=3", "did you mean training.steps?"),
    ("pretrain sst2", "is a fine-tuning recipe: run `tercet finetune sst2`"),
    ("finetune copa", "is a few-shot recipe: run `tercet fewshot copa`"),
    ("plan sst2", "is a fine-tuning recipe; tercet plan reads a pretraining recipe"),
    ("tokenizer task-distilled", "is a distillation recipe; tercet tokenizer reads a pretraining recipe"),
    ("plan encoder-demo device=tpu", "it is this_machine, which is measured, or one of a100,"),
    ("plan encoder-demo devises=8", "did you mean devices?"),
    ("pretrain encoder-demo hidden_size=64", "did you mean model.overrides.hidden_size?"),
    ("pretrain encoder-demo model.hidden_size=64", "did you mean model.overrides.hidden_size?"),
    ("distill task-distilled student.hidden_size=64", "did you mean student.overrides.hidden_size?"),
    ("pretrain encoder-demo vocab_size=64", "did you mean tokenizer.vocab_size?"),
    ("finetune sst2 device=cuda", "CUDA_VISIBLE_DEVICES"),
    ("pretrain encoder-demo training.gpus=2", "accelerate launch"),
    (
        "finetune text-classification data.train=reviews.csv",
        "model.path = runs/encoder-demo/model does not exist yet: run `tercet pretrain encoder-demo` first",
    ),
    ("fewshot copa --model runs/decoder-demo/model", "run `tercet pretrain decoder-demo` first"),
    ("predict runs/sst2/model rows.csv", "run `tercet finetune sst2` first"),
    ("doctor runs/demo/encoder/model", "run `tercet demo` first"),
    ("push runs/encoder-demo me/encoder", "run `tercet pretrain encoder-demo` first"),
    ("recipes fintune", "unknown KIND 'fintune'; did you mean finetune?"),
    ("recipes models", "unknown KIND 'models'; known: pretrain, finetune, distill, fewshot, presets"),
]

WRONG_ROWS = [
    ("finetune text-classification model.path=m data.train=rows.csv task.label=lable", "(text, label)"),
    ("finetune text-classification model.path=m data.train=row.csv", "there is no file row.csv: name one"),
    (
        "finetune text-classification model.path=m data.train=rows.csv data.validation=rows.jsonl",
        "rows.jsonl has no column 'label': name one of its columns (text, stars)",
    ),
    ("finetune text-classification model.path=runs/mine data.train=rows.csv", "did you mean runs/mime?"),
    (
        "finetune text-classification model.path=m model.tagger.beside=[m,runs/mine] data.train=rows.csv",
        "runs/mine does not exist: did you mean runs/mime?",
    ),
    ("predict runs/mine rows.csv", "runs/mine does not exist: did you mean runs/mime?"),
    ("predict runs/mime row.csv", "there is no file row.csv: name one"),
]


HEAVY = {"torch", "transformers", "accelerate", "datasets"}
"""Modules whose import takes a second or more."""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Work in a folder without runs."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("command", "message"), WRONG, ids=[command for command, _ in WRONG])
def test_the_remedy_is_of_the_right_kind(command, message, capsys):
    assert main(command.split()) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("command", [command for command, _ in WRONG[:8]])
def test_wrong_names_do_not_wait_for_torch(command):
    done, imported = run_counting_imports(command)
    assert done.returncode == 2
    assert "tercet.early_checks" in imported
    assert not imported & HEAVY


def run_counting_imports(command):
    """Run a command, and name the modules that it imports."""
    done = subprocess.run(
        [sys.executable, "-m", "tercet", *command.split()],
        env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1"},
        capture_output=True,
        text=True,
    )
    return done, {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}


@pytest.mark.parametrize(("command", "message"), WRONG_ROWS, ids=[command for command, _ in WRONG_ROWS])
def test_wrong_columns_and_files_do_not_wait_for_torch(command, message, tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\ngood,a\n")
    (tmp_path / "rows.jsonl").write_text('{"text": "good"}\n{"text": "bad", "stars": 1}\n')
    (tmp_path / "runs" / "mime").mkdir(parents=True)
    done, imported = run_counting_imports(command)
    assert message in done.stderr
    assert done.returncode == 2
    assert not imported & HEAVY


def test_a_file_of_which_a_line_cannot_be_read_is_left_to_the_command(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "good"}\n{"label": "a"}\n')
    with pytest.raises(ValueError, match=r"no column 'lable': name one of its columns \(text, label\)"):
        require_columns_early(str(file), ["text", "lable"])
    file.write_text('{"text": "good"}\nno JSON\n{"label": "a"}\n')
    require_columns_early(str(file), ["text", "lable"])


def test_a_file_of_another_kind_is_named(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text("{model: {path: m}, task: {kind: classification}, data: {train: x}, output: o}")
    assert main(["pretrain", str(file)]) == 2
    assert f"is a fine-tuning recipe: run `tercet finetune {file}`" in capsys.readouterr().err


def test_a_path_that_exists_and_one_of_nobody_are_left_to_the_command(tmp_path, capsys):
    (tmp_path / "runs" / "sst2" / "model").mkdir(parents=True)
    (tmp_path / "rows.csv").touch()
    assert main(["predict", "runs/sst2/model", "rows.csv"]) == 2
    assert "first" not in capsys.readouterr().err
    assert main(["predict", "runs/mine/model", "rows.csv"]) == 2
    assert "runs/mine/model does not exist: check the path" in capsys.readouterr().err
    (tmp_path / "runs" / "mine").mkdir()
    (tmp_path / "runs" / "mine" / "recipe.yaml").touch()
    assert main(["doctor", "runs/mine/model"]) == 2
    assert "its run has not ended: continue it with --resume" in capsys.readouterr().err
    assert main(["predict", "mine", "rows.csv"]) == 2
    assert "mine is not a folder, and cannot be loaded from the Hub" in capsys.readouterr().err


def test_every_shipped_recipe_has_a_command():
    assert {command_of(name) for name in recipe_folders()} == set(KINDS)


def test_listing_can_be_of_one_kind_and_is_uncut_when_piped(capsys):
    assert main(["recipes", "distill"]) == 0
    listed = capsys.readouterr().out
    assert "task-distilled" in listed
    assert "encoder-demo " not in listed
    assert " ..." not in listed


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tercet pre", {"pretrain", "predict"}),
        ("tercet pretrain encoder-eng", {"encoder-english"}),
        ("tercet distill two-step task.tra", {"task.training."}),
        ("tercet pretrain encoder-demo training.optimizer.le", {"training.optimizer.learning_rate="}),
    ],
)
def test_shells_complete_commands_recipes_and_keys(line, expected, tmp_path):
    pytest.importorskip("argcomplete", reason="the extra `completion` is not installed")
    answer = tmp_path / "answer"
    asking = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
    asking |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "_ARGCOMPLETE_IFS": "\n"}
    subprocess.run([sys.executable, "-m", "tercet"], env=os.environ | asking, check=False)
    assert {word.strip() for word in answer.read_text().split("\n")} == expected
