"""What is added up between two records."""

import pytest
import torch
from accelerate import Accelerator

from tercet.training.loop import MetricAccumulator


def add(window, loss, grad_norm=2.0, num_processes=1):
    window.add({"loss": torch.tensor(loss), "grad_norm": torch.tensor(grad_norm)}, num_processes)


def test_a_window_goes_on_from_a_checkpoint_as_if_nothing_had_been():
    straight, halves = MetricAccumulator(3, 10, 1.5), MetricAccumulator(3, 10, 1.5)
    losses = torch.rand(6, generator=torch.Generator().manual_seed(0)).tolist()
    for loss in losses:
        add(straight, loss)
    for loss in losses[:4]:
        add(halves, loss)
    resumed = MetricAccumulator()
    resumed.load_state_dicts([halves.state_dict()], 0, 1)
    for loss in losses[4:]:
        add(resumed, loss)
    assert (resumed.step, resumed.tokens, resumed.seconds) == (3, 10, 1.5)
    assert resumed.means(Accelerator(cpu=True)) == straight.means(Accelerator(cpu=True))


@pytest.mark.parametrize("now", [1, 2, 3, 5])
def test_other_processes_take_over_all_shares(now):
    """Three processes held a third of every loss each; the norm they all knew."""
    states = []
    for _ in range(3):
        window = MetricAccumulator(4, 0, 0.0)
        add(window, 2.0, 6.0, num_processes=3)
        add(window, 4.0, 6.0, num_processes=3)
        states.append(window.state_dict())
    windows = [MetricAccumulator() for _ in range(now)]
    for index, window in enumerate(windows):
        window.load_state_dicts(states, index, now)
        add(window, 9.0 / now, 6.0, num_processes=now)
    whole = MetricAccumulator()
    for window in windows:
        for name, value in window.sums.items():
            whole.sums[name] = whole.sums.get(name, 0) + value
    assert whole.means(Accelerator(cpu=True)) == pytest.approx({"loss": (6 + 12 + 9) / 3, "grad_norm": 6.0})
    assert {window.step for window in windows} == {4}
