"""The program for rented machines: its needs are inline; it pushes what it has trained, or says why not."""

import re
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

from .test_examples import load_example

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "lab/examples" / "train_on_a_job.py"


@pytest.fixture
def carried_out(monkeypatch):
    """Let the program call nothing but this list."""
    calls, program = [], load_example(PROGRAM.stem)
    create = lambda _, repo, **options: calls.append((repo, options))  # noqa: E731
    monkeypatch.setattr(program.HfApi, "create_repo", create)
    monkeypatch.setattr(program, "tercet", lambda words: calls.append(words) or int("fails" in words))
    return program.main, calls


def test_needs_are_inline_and_the_projects(carried_out):
    block = re.search(
        r"^# /// script\n((?:#.*\n)+?)# ///$", PROGRAM.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert block is not None
    needs = tomllib.loads(re.sub(r"^# ?", "", block[1], flags=re.MULTILINE))
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    project = setup["metadata"]
    assert needs["requires-python"] == setup["options"]["python_requires"]
    assert needs["dependencies"] == [f"{project['name']}>={project['version']}"]


def test_the_repository_is_there_before_the_run_and_the_run_before_the_push(carried_out):
    main, calls = carried_out
    assert main(["me/model", "pretrain", "decoder-demo", "training.steps=5"]) == 0
    assert calls == [
        ("me/model", {"private": True, "exist_ok": True}),
        ["pretrain", "decoder-demo", "training.steps=5", "output=run"],
        ["push", "run", "me/model", "--private"],
    ]


def test_a_run_that_fails_pushes_nothing(carried_out):
    main, calls = carried_out
    assert main(["--dry-run", "me/model", "finetune", "fails"]) == 1
    assert calls == [["finetune", "fails", "output=run"]]
