"""Commands that run nobody's code say what helps there, and advise no option that they do not know."""

import json

import pytest

from tercet.__main__ import main
from tercet.data.tokenizers.tokenizer import load_tokenizer as load_named_tokenizer
from tercet.modeling.saved.model_folder import load_tokenizer

BROUGHT = {
    "model_type": "foreign",
    "architectures": ["ForeignModel"],
    "auto_map": {"AutoConfig": "foreign.ForeignConfig", "AutoModelForMaskedLM": "foreign.ForeignModel"},
}
RECIPES = {
    "finetune": {
        "model": {"path": "MODEL"},
        "task": {"kind": "classification"},
        "data": {"train": "rows.jsonl", "validation": "rows.jsonl"},
        "output": "runs/x",
    },
    "distill": {
        "task": {"teacher": "MODEL", "data": {"train": "rows.jsonl"}},
        "output": "runs/x",
    },
}


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """Write a model that brings its own code, and rows."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(BROUGHT))
    (folder / "foreign.py").write_text("raise SystemExit('this code must not run')")
    rows = [{"text": f"row {number}", "label": "ab"[number % 2]} for number in range(8)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def said(capsys, *words):
    assert main(list(map(str, words))) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    return printed


@pytest.mark.parametrize("command", ["import", "export", "finetune", "distill"])
def test_the_remedy_works_for_the_command(command, foreign, tmp_path, capsys):
    words = [foreign, tmp_path / "out"]
    if command in RECIPES:
        (tmp_path / "recipe.yaml").write_text(json.dumps(RECIPES[command]).replace("MODEL", str(foreign)))
        words = [tmp_path / "recipe.yaml"]
    if command == "distill":
        told = {"task": {"kind": "classification"}, "facts": {"labels": ["a", "b"]}}
        (foreign / "task.json").write_text(json.dumps(told))
    complaint = said(capsys, command, *words)
    assert "brings its own code, which is not run here: name a model of transformers' own" in complaint
    assert "only tercet fewshot and tercet doctor take --trust-remote-code" in complaint


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_damaged_task_is_told(text, foreign, tmp_path, capsys):
    (foreign / "task.json").write_text(text)
    (tmp_path / "recipe.yaml").write_text(json.dumps(RECIPES["distill"]).replace("MODEL", str(foreign)))
    told = f"{foreign / 'task.json'} is damaged: copy the model's folder again, or fine-tune it again"
    assert told in said(capsys, "distill", tmp_path / "recipe.yaml")
    assert told in said(capsys, "predict", foreign, tmp_path / "rows.jsonl")


def test_the_option_is_advised_where_it_is_known(foreign, capsys):
    assert "review it, then pass --trust-remote-code" in said(capsys, "doctor", foreign)


def test_the_code_of_a_tokenizer_is_told_too(foreign):
    """Nobody is asked at the terminal, either."""
    told = {"auto_map": {"AutoTokenizer": ["foreign.ForeignTokenizer", None]}, "tokenizer_class": "Foreign"}
    (foreign / "tokenizer_config.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match=r"tokenizer in .* brings its own code, which is not run here"):
        load_tokenizer(foreign)
    with pytest.raises(ValueError, match=r"tokenizer\.path .* brings its own code, which is not run here"):
        load_named_tokenizer(str(foreign))
