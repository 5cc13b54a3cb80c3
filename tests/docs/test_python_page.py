"""The page about Python is one program: it runs from its first to its last line, on small models."""

import csv
import inspect
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import tercet
from docs.site.fences import fences, missing_lines

from ..finetune.conftest import bases, classification_rows  # noqa: F401

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
FUNCTIONS = ("pretrain", "finetune", "distill", "fewshot", "predict", "embed", "plan", "load_recipe")
PROGRAM = "".join(fence.text for fence in fences(PAGE) if fence.language == "python")
TINY = "{hidden_size: 32, num_attention_heads: 4, num_hidden_layers: 1}"
SMALLER = {
    '"training.steps=200"': f'"training.steps=2", "tokenizer.vocab_size=400", '
    f'"model.overrides={TINY}", "corpus.sequence_length=64", '
    '"training.measure_utilization=false"',
}
"""What the page says -> what takes less time."""


def example_of(name: str) -> str:
    """Return the program in the docstring of a function."""
    lines = inspect.getdoc(inspect.unwrap(getattr(tercet, name))).split("\n\n")[1].splitlines()
    assert all(line.startswith("    ") for line in lines)
    return "".join(f"{line.strip()}\n" for line in lines)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Write the files that the page reads."""
    rows = [row | {"label": "good" if "cat" in row["text"] else "bad"} for row in classification_rows(200, 0)]
    with open(tmp_path / "reviews.csv", "w", newline="") as file:
        table = csv.DictWriter(file, ["text", "label"])
        table.writeheader()
        table.writerows(rows)
    text = "\n\n".join(row["text"] for row in rows)
    (tmp_path / "books.txt").write_text(text * 4)
    (tmp_path / "held-out.txt").write_text(text[:1000] + " again")
    return tmp_path


@pytest.mark.slow
def test_the_page_and_the_docstrings_run_in_a_process_of_their_own(folder, bases, monkeypatch):  # noqa: F811
    program = "".join([PROGRAM, *map(example_of, FUNCTIONS)])
    for shown, smaller in {
        '"sentence-transformers/all-MiniLM-L6-v2"': repr(str(bases / "encoder")),
        **SMALLER,
    }.items():
        assert shown in program
        program = program.replace(shown, smaller)
    monkeypatch.setenv("TERCET_CACHE", str(folder / "cache"))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (shown,) = (fence.text for fence in fences(PAGE) if fence.language == "text")
    for label in ("good", "bad"):  # what a tiny model says is chance
        shown = shown.replace(f"'label': '{label}'", "'label': ...")
    assert [*missing_lines(shown, done.stdout)] == []


def test_the_page_lists_every_function_and_names_what_exists():
    text = PAGE.read_text(encoding="utf-8")
    listed = re.findall(r"^\| `tercet\.(\w+)\(", text, re.MULTILINE)
    assert tuple(listed) == FUNCTIONS
    assert set(FUNCTIONS) <= set(dir(tercet))
    names = {*dir(tercet.Result), *(field.name for field in fields(tercet.Result))}
    assert set(re.findall(r"`run\.(\w+)", text)) <= names
