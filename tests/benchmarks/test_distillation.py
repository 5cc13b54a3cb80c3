"""Stock modules and ours compute one loss, and the whole program runs on shapes that take no time."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_both_ways_compute_one_loss(module):
    distillers = module("distillation_sides")
    case = replace(distillers.CASE.shrunk(), num_hidden_layers=2)
    told = distillers.compare(case)
    assert told["difference"] < 1e-5
    assert told["stock"] > 1


@pytest.mark.slow
def test_program_measures_all_sides_and_writes_them_down(tmp_path, module):
    begin, end = module("publishing").marks_of("distillation.py")
    output, page = tmp_path / "result.json", tmp_path / "page.md"
    page.write_text(f"before\n{begin}\n{end}\nafter\n")
    options = ["--smoke", "--rounds", "1", "--threads", "1", "--common-scheduler-group"]
    command = [sys.executable, ROOT / "benchmarks" / "distillation.py", *options]
    command += ["--output", output, "--page", page, "--any-load"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert list(json.loads(output.read_text())["sides"]) == list(module("distillation_sides").SIDES)
    assert page.read_text() == f"before\n{begin}\n{printed}{end}\nafter\n"
