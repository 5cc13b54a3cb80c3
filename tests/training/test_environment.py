"""What a run's numbers depend on besides its recipe."""

import torch
from accelerate import Accelerator

from tercet.training.devices.environment import changes, environment_of


def test_the_environment_names_machine_and_libraries_and_stays_within_a_process(toys):
    found, again = (environment_of(toys.Model(), Accelerator(cpu=True)) for _ in range(2))
    assert changes(found, again) == []
    assert (found["processes"], found["weights"], found["torch"]) == (1, "copied", torch.__version__)
    assert found["device"].startswith("cpu (")


def test_a_change_says_what_it_means_and_so_does_what_came_or_went():
    (line,) = changes({"processes": 1, "torch": "2.9"}, {"processes": 4, "torch": "2.9"})
    assert line.startswith("processes: 4, was 1 (the data and their order stay")
    assert changes({"device": "cpu"}, {"device": "H100"}) == [
        "device: H100, was cpu (sums round otherwise, and dropout may draw otherwise)"
    ]
    assert changes({"a": {"b": 1}}, {"a": {"c": 2}}) == ["a.c: 2, was None", "a.b: None, was 1"]
