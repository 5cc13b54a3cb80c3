"""Every message of the troubleshooting page is provoked by the command above it."""

import re
import shlex
from pathlib import Path

import pytest

from tercet.__main__ import main

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "troubleshooting.md"
SESSIONS = re.findall(r"^\$ (.*)\n((?:(?!\$ |```).*\n)+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
"""Commands of the page, each with what it prints."""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Leave files that are as wrong as the page says, and no network."""
    (tmp_path / "books.txt").write_text("One sentence.\n\nAnother sentence.\n")
    (tmp_path / "held-out.txt").write_text("A third sentence.\n\nAnd a fourth one.\n")
    (tmp_path / "broken.jsonl").write_text('{"text": "Fine."}\n{"text": \n')
    (tmp_path / "reviews.csv").write_text("review,stars\ngood,5\nbad,1\n")
    (tmp_path / "gaps.csv").write_text("text,label\ngood,a\nbad,\n")
    (tmp_path / "tags.jsonl").write_text('{"tokens": ["Ada"], "tags": ["I-PER"]}\n')
    (tmp_path / "runs" / "any").mkdir(parents=True)
    (tmp_path / "runs" / "any" / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERCET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


def test_page_has_sessions():
    assert len(SESSIONS) >= 10


@pytest.mark.parametrize(("command", "shown"), SESSIONS, ids=[command for command, _ in SESSIONS])
def test_command_prints_the_message(command, shown, folder, capsys):
    assert main(shlex.split(command)[1:]) == 2
    printed = capsys.readouterr().err
    pattern = re.escape(shown.strip()).replace(re.escape("..."), ".*")
    assert re.search(rf"{pattern}$", printed.strip(), re.DOTALL), printed
