"""Speeds of the character model stand beside those of its peers, flair's from a process of its own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_side_has_a_speed_and_its_ratio_to_flairs(tmp_path):
    text, python = tmp_path / "text.txt", tmp_path / "python"
    text.write_text("The green house is old.\nIt stands by the river.\n")
    python.write_text("#!/bin/sh\nread about\nwhile read kind; do echo 100.0; done\n")
    python.chmod(0o755)
    command = [sys.executable, ROOT / "benchmarks" / "characters.py", "--hidden", "8", "--rounds", "1"]
    command += ["--text", text, "--sentences", "2", "--flair", python]
    printed = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout
    training, embedding = printed.split("words of sentences")
    names = [line.split()[0] for line in training.splitlines()[1:]]
    assert names == ["tercet", "tercet-bf16", "plain", "flair"]
    assert [line.split()[0] for line in embedding.splitlines()[1:]] == ["tercet", "tercet-bf16", "flair"]
    assert training.splitlines()[-1].split()[1:] == ["80", "characters/s,", "1.00", "x", "flair"]
    assert embedding.splitlines()[-1].endswith("0 words/s,         0 characters/s, 1.00 x flair")
