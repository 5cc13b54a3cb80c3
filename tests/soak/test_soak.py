"""The soak: what it finds wrong, and a short one."""

import json
import random
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

SOAK = Path(__file__).parent
STEPS = 3


@pytest.fixture
def soak(monkeypatch):
    monkeypatch.syspath_prepend(str(SOAK))
    return import_module("soak")


@pytest.fixture
def finished(tmp_path):
    """Make the folder of a finished run of three steps."""

    def finished(name, loss=1.5, weight=2.0, moment=0.25):
        folder = tmp_path / name
        checkpoint = folder / "checkpoints" / f"step-{STEPS:08d}"
        for path in (checkpoint, folder / "model"):
            path.mkdir(parents=True)
        records = [{"step": step, "loss": loss, "seconds": len(name)} for step in range(STEPS)]
        (folder / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        save_file({"weight": torch.full((4,), weight)}, folder / "model" / "model.safetensors")
        state = {0: {"exp_avg": torch.full((4,), moment)}}
        torch.save({"optimizer": {"state": state}}, checkpoint / "optimizer.pt")
        return folder

    return finished


def test_equal_runs_are_found_equal_whatever_time_they_took(soak, finished):
    verdicts = soak.compare(finished("one"), finished("another"), STEPS)
    assert [is_good for is_good, _ in verdicts] == [True, True, True]


@pytest.mark.parametrize("place", ["loss", "weight", "moment"])
def test_the_smallest_difference_is_found(soak, finished, place):
    value = {"loss": 1.5, "weight": 2.0, "moment": 0.25}[place]
    verdicts = soak.compare(finished("one"), finished("other", **{place: value * (1 + 2**-23)}), STEPS)
    assert [is_good for is_good, _ in verdicts] == [place != kind for kind in ("loss", "weight", "moment")]


@pytest.mark.parametrize(("growth", "is_flat"), [(0.0, True), (0.5, True), (2.0, False)])
def test_growing_memory_is_found(soak, growth, is_flat):
    """What settles at first is no growth, nor is the end of a data worker a decline."""
    life = soak.Life(0)
    settled = [500 + min(step, 1_000) / 10 for step in range(10_000)]
    life.samples = [(0.0, step, mib + growth * step / 1000) for step, mib in enumerate(settled)]
    life.samples += [(0.0, 10_000, 300.0)]
    assert soak.judge_memory(life)[0] is is_flat


def test_too_few_steps_are_not_judged(soak):
    life = soak.Life(0, samples=[(0.0, step, 500.0) for step in range(1_500)])
    is_flat, said = soak.judge_memory(life)
    assert not is_flat
    assert "1499 steps are too few to judge it" in said


def test_the_last_complete_record_is_read(soak, tmp_path):
    run = soak.Run(tmp_path / "recipe.yaml", tmp_path, STEPS)
    assert run.logged_step() == 0
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n{"step": 22}\n{"ste')
    assert run.logged_step() == 22


@pytest.mark.parametrize("steps_per_second", [1, 1000])
def test_a_run_is_killed_before_its_end_however_fast_it_is(soak, tmp_path, monkeypatch, steps_per_second):
    """A run that is left alone while the machine is busy says little of how long the next one takes."""

    def live(self, is_over, number):
        for step in range(self.steps):
            life = soak.Life(0, -number, samples=[(step / steps_per_second, step, 500.0)])
            life.seconds = step / steps_per_second
            if is_over(life):
                return life
        return soak.Life(0)

    monkeypatch.setattr(soak.Run, "live", live)
    run = soak.Run(tmp_path / "recipe.yaml", tmp_path, 200)
    for seed in range(20):
        killed = list(run.live_dangerously(15.0, 0.0, random.Random(seed)))
        assert [life.status == 0 for life in killed] == [False, True]


@pytest.mark.slow
def test_a_short_soak_finds_nothing(tmp_path):
    command = [sys.executable, SOAK / "soak.py", "--minutes", "0.3", "--folder", tmp_path]
    printed = subprocess.run(command, capture_output=True, text=True).stdout
    verdicts = [line.split(None, 1) for line in printed.splitlines() if line.startswith(("ok", "FAILED"))]
    assert len(verdicts) >= 5
    # There may be too few steps to judge the memory.
    assert all(verdict == "ok" for verdict, said in verdicts if not said.startswith("memory")), printed
