"""The table of generation, and the whole program on shapes that take no time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_speeds_and_ratios_are_those_of_the_medians(module):
    case = module("generation_sides").WRITING_CASES["4x256-batch-8"]
    seconds = {"stock": [8.0, 4.0, 10.0], "stock-bf16": [4.0], "tercet": [2.0], "tercet-bf16": [1.0, 1.0]}
    sides = {name: {"seconds": times} for name, times in seconds.items()}
    texts = {"parameters": 1000, "same_tokens": dict.fromkeys(seconds, 1.0)}
    module("generation").summarize(sides, case, texts)
    assert sides["stock"]["tokens_per_second"] == 128
    assert (sides["stock"]["slowest"], sides["stock"]["fastest"]) == (102.4, 256)
    assert sides["tercet-bf16"]["ratio_to_stock"] == 8
    assert sides["tercet-bf16"]["ratio_to_stock-bf16"] == 4
    # 128 steps in a second, each of which reads all parameters.
    assert sides["tercet-bf16"]["bytes_per_second"] == 128 * 2000
    assert sides["tercet"]["bytes_per_second"] == 64 * 4000


@pytest.mark.slow
def test_program_measures_all_sides_and_writes_them_down(tmp_path, module):
    begin, end = module("publishing").marks_of("generation.py")
    output, page = tmp_path / "result.json", tmp_path / "page.md"
    page.write_text(f"before\n{begin}\n{end}\nafter\n")
    options = ["--smoke", "--cases", "4x256", "--rounds", "1", "--threads", "1"]
    options += ["--common-scheduler-group", "--output", output, "--page", page, "--any-load"]
    command = [sys.executable, ROOT / "benchmarks" / "generation.py", *options]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    case = json.loads(output.read_text())["cases"]["4x256"]
    assert list(case["sides"]) == ["stock", "stock-bf16", "tercet", "tercet-bf16"]
    assert case["texts"]["same_tokens"]["tercet"] == 1
    assert page.read_text() == f"before\n{begin}\n{printed}{end}\nafter\n"
