"""The program for a GPU: laws can break, gates are judged."""

import json
import math
import subprocess
from configparser import ConfigParser
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from lab.benchmarks import cases, gpu, sides
from lab.benchmarks.__main__ import NAMES, load
from lab.benchmarks.benchmark import main
from tercet.training.devices import compiling

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("is_limit", "verdicts"),
    [
        (False, {None: "not measured", 0.9: "**missed**", 1.0: "met", 2.5: "met"}),
        (True, {1.1: "**missed**", 1.0: "met", 0.7: "met"}),
    ],
)
def test_gates_are_judged_in_their_direction(is_limit, verdicts):
    gate = gpu.Gate("speed", 1.0, is_limit)
    assert {value: gate.verdict(value) for value in verdicts} == verdicts


def test_a_causal_token_needs_what_its_products_do():
    """One of 16 predicts nothing: of the last layer, only its query, key and value are needed."""
    case = cases.CASES["decoder"].shrunk()
    described = gpu.describe(case)
    layers, behind, head, attention = 15 * 32**2, 9 * 32**2, 97 * 32, 2 * 32 * 16
    needed = 6 * (layers + (behind + head) * 15 / 16 + attention)
    assert described == {"tokens": 8 * 16, "flops_per_token": needed}


def test_without_a_gpu_the_program_says_what_to_do(capsys):
    assert main(["gpu"], NAMES, load) == 2
    assert "finds no GPU here: add --smoke" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["gpu", "--smoke", "--cases", "gpt3"], NAMES, load)
    assert "choose from laws-encoder" in capsys.readouterr().err.replace("'", "")


@pytest.mark.usefixtures("no_accelerator_remains")
def test_laws_hold_and_a_broken_one_shows(monkeypatch):
    """Labels of rows that belong to other tokens break one law, and no other: `compare` pads otherwise."""
    padded = sides.padded

    def flipped(*arguments):
        rows = padded(*arguments)
        return rows | {"labels": rows["labels"].flip(1)} if len(arguments) == 2 else rows

    monkeypatch.setattr(sides, "padded", flipped)
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    found = sides.laws(gpu.PARTS["laws-decoder"].shrunk().case, torch.device("cpu"))
    broken = [name for name, law in found.items() if law["difference"] > law["limit"]]
    assert len(found) == 5
    assert broken == ["packed = padded"]


@pytest.mark.slow
def test_smoke_holds_the_laws_and_measures_every_part(tmp_path, program):
    program("benchmarks", "gpu", "--smoke", "--output", tmp_path / "result.json")
    parts = json.loads((tmp_path / "result.json").read_text())["cases"]
    assert parts.keys() == gpu.PARTS.keys()
    assert not [
        (name, side)
        for name, part in parts.items()
        for side, found in part.get("sides", {}).items()
        if "failure" in found
    ]
    assert parts["pretrain"]["tokens_per_second"]
    laws = [
        law
        for name in parts
        if name.startswith("laws")
        for law in parts[name]["sides"]["laws"]["laws"].values()
    ]
    assert len(laws) == 15
    assert all(law["difference"] <= law["limit"] for law in laws)


def test_what_was_not_observed_or_measured_leaves_the_rest_of_a_table():
    side = {"seconds": [2.0, 1.0, 4.0], "seconds_to_first_step": 30.0, "graphs": 1}
    sides = {
        "tercet": side | {"recompilations": 0, "memory_mib": 512.0},
        "stock-compiled": side | {"seconds": [4.0]},
    }
    part = {
        "tokens": 100,
        "flops_per_token": 2e9,
        "sides": sides | {"stock": {"seconds": [], "failure": "a | b"}},
    }
    parts = {
        "8x512": part,
        "gpt2": part,
        "pretrain": {"tokens_per_second": [40.0, 45.0, 60.0]},
        "4x256": {"failure": "late"},
    }
    verdicts = [(*row[1:2], *row[3:]) for row in gpu.gate_rows(parts, peak=1e12)]
    assert [verdicts[0], *verdicts[5:7], verdicts[10]] == [
        ("tokens/s", "50", "**missed**"),
        ("share of peak", "0.1", "**missed**"),
        ("speed / stock-compiled", "2", "met"),
        ("speed / 8x512", "0.9", "**missed**"),
    ]
    assert verdicts[1:5] == [
        ("speed / stock-compiled", "2", "met"),
        ("memory / stock-compiled", "", "not measured"),
        ("recompilations", "0", "met"),
        ("seconds to the first step", "30", "met"),
    ]
    rows = [*gpu.side_rows(parts, peak=1e12)]
    assert {len(row) for row in rows} == {len(gpu.COLUMNS_OF_SIDES)}
    assert rows[0][2:] == ["50 (25 to 100)", "10.0%", "0.5", "30"]
    assert [row[2] for row in rows[5:]] == ["not measured: a / b", "45 (40 to 60)", "not measured: late"]
    sides["tercet"] |= {"failure": "late"}
    assert [*gpu.remarks({"8x512": part | {"sides": sides}})] == [f"- {gpu.EIGHT.name}, tercet: late"]


def test_turns_that_were_timed_count_when_a_later_one_is_late(monkeypatch):
    answers = {gpu.count_graphs: iter([3]), gpu.seconds_from_rest: iter([2.0, 1.0])}
    answers |= {gpu.seconds_of: iter([1.0, 1.0])}

    class LateWorker:
        preparation, process = 5.0, Mock()

        def __init__(self, *arguments):
            pass

        def do(self, task):
            if (answer := next(answers[task], None)) is None:
                raise TimeoutError("not ready in time")
            return answer

    monkeypatch.setattr(gpu, "Worker", LateWorker)
    part = replace(gpu.PARTS["gpt2"].shrunk(), sides={"tercet": replace(gpu.OURS, warm_ups=2)})
    options = SimpleNamespace(rounds=3, minutes=math.inf, smoke=False)
    found = gpu.measure_part(part, options, None, {})["sides"]["tercet"]
    assert found == {
        "seconds": [2.0, 1.0],
        "seconds_to_first_step": 6.0,
        "graphs": 3,
        "failure": "not ready in time",
    }
    assert LateWorker.process.kill.called


def test_without_installing_the_links_of_the_makefile_are_the_package():
    subprocess.run(["make", "-s", "typings"], check=True, cwd=ROOT)
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    for package in setup["options"]["packages"].split():
        assert (ROOT / "typings" / package.replace(".", "/") / "__init__.py").exists()
