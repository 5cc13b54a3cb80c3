"""The whole program, on shapes that take no time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_program_measures_all_sides_and_writes_them_down(tmp_path, module):
    begin, end = module("publishing").marks_of("pretraining.py")
    output, page = tmp_path / "result.json", tmp_path / "page.md"
    page.write_text(f"before\n{begin}\n{end}\nafter\n")
    options = [
        "--smoke",
        "--cases",
        "encoder",
        "--sides",
        "stock",
        "stock-tuned",
        "tercet",
        "--rounds",
        "1",
        "--threads",
        "1",
    ]
    options += ["--common-scheduler-group", "--output", output, "--page", page, "--any-load"]
    command = [sys.executable, ROOT / "benchmarks" / "pretraining.py", *options]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    case = json.loads(output.read_text())["cases"]["encoder"]
    assert list(case["sides"]) == ["stock", "stock-tuned", "tercet"]
    assert case["parity"]["loss_difference"] < 1e-5
    assert page.read_text() == f"before\n{begin}\n{printed}{end}\nafter\n"
