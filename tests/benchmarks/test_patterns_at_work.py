"""Patterns at work: the models that are compared, the tables, and the whole program."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tercet import TercetEncoderConfig

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shop(module, tmp_path):
    tasks, measuring = module("patterns_at_work_tasks"), module("measuring")
    return tasks.Workshop(tmp_path, tmp_path, tasks.FULL, measuring.Conditions(1))


def test_every_pattern_is_a_configuration(module, shop):
    tasks, sizes = module("patterns_at_work_tasks"), shop.scale.novels.sizes
    configs = [
        TercetEncoderConfig(**sizes, **tasks.pattern_fields(name, sizes["num_hidden_layers"], 16))
        for name in tasks.PATTERNS
    ]
    kinds = [set(config.layer_types or ["full_attention"]) for config in configs]
    assert kinds == [{"full_attention"}, {"big_bird_attention"}, {"big_bird_attention"}]


def test_models_of_other_patterns_lengths_and_scales_lie_in_other_folders(module, shop, tmp_path):
    tasks = module("patterns_at_work_tasks")
    trial = tasks.Workshop(tmp_path, tmp_path, tasks.TRIAL, shop.conditions)
    cells = [tasks.reader_cell(each, *reader) for each in (shop, trial) for reader in tasks.readers(each)]
    assert len(set(cells)) == 8


def test_tables_have_means_and_what_no_attention_reaches(module):
    program = module("patterns_at_work")
    about = {"values": [0.4, 0.5, 0.6], "baselines": {"majority": 0.1, "bag_of_words": 0.2}, "seconds": 90.0}
    lists = program.lists_table([{"pattern": "local", **about}])
    assert lists[1:] == [["bag of words", "20.0", ""], ["local", "50.0 ± 10.0", "1.5"]]
    films = program.reviews_table([{"pattern": "full", "length": 4096, **about}])
    assert films[1:] == [["bag of words", "", "20.0", ""], ["full", "4,096", "50.0 ± 10.0", "1.5"]]
    novels = program.contexts_table(
        [
            {"pattern": "full", "length": 512, "bits": {"512": 1.5}, "seconds": 60.0},
            {"pattern": "big bird", "length": 4096, "bits": {"512": 1.6, "4096": 1.4}, "seconds": 120.0},
        ]
    )
    assert novels[1:] == [["full", "512", "1.500", "", "1.0"], ["big bird", "4,096", "1.600", "1.400", "2.0"]]


@pytest.mark.parametrize("is_timed", [True, False])
def test_times_of_a_busy_machine_are_left_out(module, monkeypatch, is_timed):
    program = module("patterns_at_work")
    monkeypatch.setattr(program, "describe_run", lambda _: [])
    row = {"pattern": "local", "values": [0.5], "baselines": {"majority": 0.1}, "seconds": 90.0}
    result = {"is_trial": False, "is_timed": is_timed, "parts": {"listops": [row]}}
    time = {True: (" minutes of a run |", "--:|", "  |", " 1.5 |"), False: ("", "", "", "")}[is_timed]
    assert program.render(result).splitlines() == [
        "",
        f"| ListOps | accuracy in % |{time[0]}",
        f"|---|--:|{time[1]}",
        f"| majority | 10.0 |{time[2]}",
        f"| local | 50.0 |{time[3]}",
    ]


@pytest.mark.slow
def test_program_trains_every_part_once(text, tmp_path, module):
    data = tmp_path / "data"
    (data / "synthetic" / "listops").mkdir(parents=True)
    (data / "movie_reviews").mkdir()
    (data / "pretrain_en").symlink_to(text)
    rows = "".join(f'{{"text": "[MAX {number} 1 ]", "label": {number}}}\n' for number in range(2, 6)) * 6
    for folder in ("synthetic/listops", "movie_reviews"):
        for split in ("train", "validation", "test"):
            (data / folder / f"{split}.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    output = tmp_path / "result.json"
    command = [sys.executable, ROOT / "benchmarks" / "patterns_at_work.py", "--data", data]
    command += ["--try", "--threads", "1", "--seeds", "1", "--review-seeds", "1", "--common-scheduler-group"]
    command += ["--folder", tmp_path / "cells", "--output", output]
    subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
    parts = json.loads(output.read_text())["parts"]
    assert [len(parts[name]) for name in ("listops", "contexts", "reviews")] == [3, 4, 4]
    assert all(set(row["bits"]) <= {"64", "256"} for row in parts["contexts"])
    times = [file.stat().st_mtime_ns for file in sorted((tmp_path / "cells").rglob("result.json"))]
    subprocess.run([*map(str, command), "--parts", "listops"], capture_output=True, text=True, check=True)
    assert [file.stat().st_mtime_ns for file in sorted((tmp_path / "cells").rglob("result.json"))] == times
