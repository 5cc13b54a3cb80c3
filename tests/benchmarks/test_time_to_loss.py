"""The whole program, on a text that takes no time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_program_races_both_sides_and_writes_them_down(text, tmp_path, module):
    begin, end = module("publishing").marks_of("time_to_loss.py")
    output, page = tmp_path / "result.json", tmp_path / "page.md"
    page.write_text(f"before\n{begin}\n{end}\nafter\n")
    overrides = ["training.steps=6", "training.stages=[]", "training.evaluate_every=2"]
    options = ["--contests", "encoder", "--data", text, "--rates", "1e-4", "1e-3"]
    options += ["--minutes", "0.05", "--pilot-minutes", "0.03"]
    options += ["--threads", "1", "--common-scheduler-group", "--override", *overrides]
    options += ["--folder", tmp_path / "runs", "--output", output, "--page", page, "--any-load"]
    command = [sys.executable, ROOT / "benchmarks" / "time_to_loss.py", *map(str, options)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    race = json.loads(output.read_text())["contests"]["encoder"]
    stock, tercet = race["sides"].values()
    assert stock["curve"][-1]["loss"] == race["target"]
    assert [point["step"] for point in tercet["curve"]] == [2, 4, 6]
    assert set(race["pilots"]) == {"0.0001", "0.001"}
    assert len(list((tmp_path / "runs" / "encoder").glob("tercet-*/log.jsonl"))) == 1
    assert page.read_text() == f"before\n{begin}\n{printed}\n![](result.png)\n{end}\nafter\n"
    assert page.with_name("result.png").exists()
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stderr == "", "finished runs are kept"
    assert again.stdout.splitlines()[-2:] == printed.splitlines()[-2:]
