"""The whole program, on shapes that take no time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_neighbours_run_until_they_are_not_needed(module):
    with module("busy_neighbour").neighbours(2) as programs:
        assert [program.poll() for program in programs] == [None, None]
    assert None not in [program.poll() for program in programs]


@pytest.mark.slow
def test_program_measures_all_ways_and_writes_them_down(tmp_path):
    output = tmp_path / "result.json"
    options = [
        "--any-load",
        "--smoke",
        "--rounds",
        "1",
        "--threads",
        "2",
        "--neighbours",
        "1",
        "--output",
        output,
    ]
    command = [sys.executable, ROOT / "benchmarks" / "busy_neighbour.py", *options]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    speeds = json.loads(output.read_text())["speeds"]
    assert len(speeds) == 5
    assert all(speed > 0 for way in speeds.values() for turns in way.values() for speed in turns)
    assert "`training.adaptive_threads=true`" in printed
