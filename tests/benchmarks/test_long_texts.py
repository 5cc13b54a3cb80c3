"""The tables of long texts, and the whole program on models that take no time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def measured(length, work, **seconds):
    """Make a case as the program measures it."""
    sides = {name: {"seconds": times, "memory_mib": 10.0 * len(name)} for name, times in seconds.items()}
    return {"work": work, "case": {"length": length}, "sides": sides}


def test_times_are_medians_and_growth_is_a_power(module):
    benchmark = module("long_texts")
    cases = [
        measured(1024, "training", tercet=[1.0, 3.0, 2.0], stock=[8.0]),
        measured(4096, "training", tercet=[8.0], stock=[128.0]),
    ]
    for case in cases:
        benchmark.summarize(case["sides"])
    assert cases[0]["sides"]["tercet"]["median"] == 2
    assert cases[1]["sides"]["tercet"]["ratio_to_stock"] == 16
    assert cases[1]["sides"]["tercet"]["memory_ratio"] == 5 / 6
    assert benchmark.growth(cases, "training", "tercet") == ["1,024 to 4,096: 1.00"]
    assert benchmark.growth(cases, "training", "stock") == ["1,024 to 4,096: 2.00"]


@pytest.mark.parametrize("trains", [True, False])
def test_both_sides_have_equal_parameters_and_read_a_text(trains, module):
    readers = module("readers")
    case = readers.ReadingCase(256, trains).shrunk()
    ours, stock = case.build_tercet("big_bird_attention"), case.build_stock("block_sparse")
    counts = [sum(weight.numel() for weight in model.parameters()) for model in (ours, stock)]
    assert counts[0] == counts[1]
    for side in readers.readers_of(256).values():
        side.prepare(case, torch.device("cpu"))()
    assert "stock-full" not in readers.readers_of(8192)


@pytest.mark.slow
def test_program_measures_all_sides_and_writes_them_down(tmp_path, module):
    begin, end = module("publishing").marks_of("long_texts.py")
    output, page = tmp_path / "result.json", tmp_path / "page.md"
    page.write_text(f"before\n{begin}\n{end}\nafter\n")
    options = ["--try", "--lengths", "256", "512", "--rounds", "1", "--threads", "1"]
    options += ["--common-scheduler-group", "--output", output, "--page", page, "--any-load"]
    command = [sys.executable, ROOT / "benchmarks" / "long_texts.py", *options]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    cases = json.loads(output.read_text())["cases"]
    assert [(case["work"], case["case"]["length"]) for case in cases] == [
        ("training", 256), ("forward", 256), ("training", 512), ("forward", 512)
    ]  # fmt: skip
    names = ["tercet", "tercet-bf16", "tercet-full", "stock", "stock-full"]
    assert all(list(case["sides"]) == names for case in cases)
    assert page.read_text() == f"before\n{begin}\n{printed}{end}\nafter\n"
