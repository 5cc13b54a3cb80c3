"""Nothing that is printed commands a terminal, and what bars draw and JSON says stays the same."""

import io
import json
import sys
import warnings
from contextlib import suppress
from dataclasses import replace

import pytest
from tqdm import tqdm

from tercet.__main__ import main
from tercet.commands import COMMANDS
from tercet.configs.terminal import PlainText, escaped

EVIL = "good\x1b[2J\x1b]0;title\x07\r\x08\x7f\x85\x9b31m\u202e\u2066\u2028"
"""An escape, a title, a line drawn over, C1 (CSI in one character), and overrides of direction."""


def test_what_is_no_command_stays():
    text = "a\tb\n\u00e9 \u200f\u05e9\u05dc\u05d5\u05dd \u200d \N{GRINNING FACE} \\\\ \\u001b"
    assert escaped(text) == text


def test_json_keeps_its_meaning():
    line = json.dumps({EVIL: [EVIL]}, ensure_ascii=False)
    assert escaped(line).isprintable()
    assert json.loads(escaped(line)) == {EVIL: [EVIL]}


def drawn(stream) -> None:
    """Draw bars within each other, with lines above them."""
    options = {"file": stream, "mininterval": 0, "bar_format": "{desc} {n}"}
    for _ in tqdm(range(3), desc="outer", **options):
        for _ in tqdm(range(2), desc="inner", leave=False, **options):
            pass
        tqdm.write("a line", file=stream)


def test_progress_bars_are_drawn_as_ever():
    plain, escaping = io.StringIO(), io.StringIO()
    drawn(plain)
    drawn(PlainText(escaping, has_bars=True))
    assert escaping.getvalue() == plain.getvalue()
    assert "\x1b[A" in escaping.getvalue()


def test_a_bar_says_a_label_as_text():
    said = io.StringIO()
    for _ in tqdm(range(2), desc=EVIL, file=PlainText(said, has_bars=True), mininterval=0):
        pass
    assert said.getvalue().replace("\r", "").replace("\n", "").isprintable()


def talk(options) -> None:
    """Say it in every way that a command has."""
    print(EVIL, EVIL)
    print(EVIL, file=sys.stderr)
    sys.stdout.writelines([EVIL, EVIL])
    warnings.warn(EVIL, stacklevel=1)
    raise ValueError(EVIL)


@pytest.mark.parametrize("argument", [[], ["--unknown=" + EVIL]])
def test_no_command_prints_a_control_character(argument, monkeypatch, capsys):
    monkeypatch.setitem(COMMANDS, "demo", replace(COMMANDS["demo"], run=talk))
    streams = sys.stdout, sys.stderr
    with suppress(SystemExit):  # as the parser leaves
        assert main(["demo", *argument]) == 2
    assert (sys.stdout, sys.stderr) == streams
    said = capsys.readouterr()
    assert (said.out + said.err).replace("\n", "").isprintable()
    assert "good" in said.err


@pytest.mark.parametrize("command", ["doctor", "predict", "play", "push"])
def test_nor_what_a_configuration_holds(command, tmp_path, capsys):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": EVIL, "architectures": [EVIL]}))
    more = {"predict": ["a text"], "push": ["me/model", "--dry-run"]}
    assert main([command, str(tmp_path / "model"), *more.get(command, [])]) in (1, 2)
    said = capsys.readouterr()
    assert (said.out + said.err).replace("\n", "").isprintable()
