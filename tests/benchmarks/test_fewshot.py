"""The table of scoring, and the whole program on shapes that take no time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed")
ROOT = Path(__file__).parents[2]


def test_all_sides_score_alike(module):
    askers = module("fewshot_sides")
    found = askers.compare_scores(askers.ASKING_CASES["4x256"].shrunk())
    for name, difference in found["difference"].items():
        assert difference < (0.5 if name.endswith("bf16") else 1e-4)
    assert found["same_picks"]["prefix-cache"] == found["same_picks"]["tercet"] == 1


def test_speeds_and_ratios_are_those_of_the_medians(module):
    case = module("fewshot_sides").ASKING_CASES["4x256"]
    seconds = {
        "harness": [8.0, 4.0, 10.0],
        "harness-bf16": [4.0],
        "prefix-cache": [2.0],
        "tercet": [0.25],
        "tercet-bf16": [0.5],
    }
    sides = {name: {"seconds": times} for name, times in seconds.items()}
    scores = {"difference": dict.fromkeys(seconds, 0.0), "same_picks": dict.fromkeys(seconds, 1.0)}
    module("fewshot").summarize(sides, case, scores)
    assert sides["harness"]["choices_per_second"] == 6
    assert (sides["harness"]["slowest"], sides["harness"]["fastest"]) == (4.8, 12)
    assert [sides["tercet"][f"ratio_to_{peer}"] for peer in module("fewshot").PEERS] == [32, 16, 8]


@pytest.mark.slow
def test_program_measures_all_sides_and_writes_them_down(tmp_path, module):
    begin, end = module("publishing").marks_of("fewshot.py")
    output, page = tmp_path / "result.json", tmp_path / "page.md"
    page.write_text(f"before\n{begin}\n{end}\nafter\n")
    options = ["--smoke", "--cases", "4x256", "--rounds", "1", "--threads", "1"]
    options += ["--common-scheduler-group", "--output", output, "--page", page, "--any-load"]
    command = [sys.executable, ROOT / "benchmarks" / "fewshot.py", *options]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    case = json.loads(output.read_text())["cases"]["4x256"]
    assert list(case["sides"]) == list(module("fewshot_sides").WAYS)
    assert page.read_text() == f"before\n{begin}\n{printed}{end}\nafter\n"
