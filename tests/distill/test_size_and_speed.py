"""Sizes are counted, models are timed in turns, and the report says both ways what is saved."""

from pathlib import Path

import pytest
import torch

from tercet.distill.size_and_speed import (
    BATCH,
    measure_speeds,
    pass_of,
    size_of,
    time_all,
)
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.reports.distill.report import saved_time, size_table

CPU = torch.device("cpu")


@pytest.mark.parametrize("member", ["encoder", "decoder", "seq2seq"])
def test_models_are_timed_at_what_they_are_for(member, teachers):
    model = Checkpoint.open(str(teachers / member)).transformer()
    pass_of(model, 2)()
    times = time_all({"one": model, "other": model}, 1, CPU, rounds=2)
    assert times.keys() == {"one", "other"}
    assert min(times.values()) > 0
    size = size_of(model, Path(teachers / member))
    assert size.parameters == model.num_parameters() > size.inner_parameters > 0
    assert size.disk > 4 * size.inner_parameters


@pytest.mark.slow
def test_memory_is_measured_in_a_process_of_its_own(teachers):
    folder = str(teachers / "encoder")
    told = measure_speeds(
        {"teacher": Checkpoint.open(folder).transformer()}, {"teacher": folder}, CPU, {1: 1, BATCH: 1}
    )
    assert all(value > 0 for value in told["teacher"].values())


def test_what_is_saved_is_said_in_both_ways():
    """DistilBERT's 410 s instead of 668 s: 39 % less time, 1.63 times the speed."""
    assert saved_time(410 / 668) == ["39% less time", "1.63x as fast"]
    sizes = {
        "teacher": {"parameters": 100, "inner_parameters": 80, "disk": 400},
        "student": {"parameters": 60, "inner_parameters": 40, "disk": 240},
    }
    speeds = {
        "teacher": {"latency": 0.2, "throughput": 10.0, "memory": 200.0},
        "student": {"latency": 0.1, "throughput": 25.0, "memory": 150.0},
    }
    rows = {row[0]: row[3:] for row in size_table({"sizes": sizes, "speeds": speeds}).rows}
    assert rows["parameters"][0] == "40% fewer"
    assert rows["parameters in layers"][0] == "50% fewer"
    assert rows["seconds for one alone"] == ["50% less time", "2.00x as fast"]
    assert rows["seconds for one, 32 at once"] == ["60% less time", "2.50x as fast"]
    assert rows["memory, MiB"][0] == "25% less"
    assert rows["DistilBERT, published: seconds"] == ["39% less time", "1.63x as fast"]
