"""Threads are taken back where other programs hold the cores, and offered again when these are gone."""

import os
import subprocess
import sys
from contextlib import suppress

import pytest
import torch

from tercet.training.recipe import TrainingRecipe
from tercet.training.threads import (
    LONGEST_QUIET,
    QUIET,
    TASKS,
    AdaptiveThreads,
    ThreadPolicy,
    prepared_cpu,
    read_thread_times,
    thread_adapter,
    waiting_shares,
)

SECOND = 10**9


def test_a_waiting_share_is_the_time_without_a_core_of_threads_that_took_part():
    before = {1: (5 * SECOND, SECOND), 2: (0, 0), 3: (7, 7)}
    after = {1: (5 * SECOND + SECOND // 4, SECOND + 3 * SECOND // 4), 2: (SECOND, 0), 3: (SECOND // 10, 7)}
    assert waiting_shares(before, after, 1.0) == [0.75, 0.0]


def test_a_thread_that_is_new_counts_from_nothing():
    assert waiting_shares({}, {1: (SECOND // 2, SECOND // 2)}, 1.0) == [0.5]


def test_as_many_threads_are_taken_back_as_had_to_wait_and_one_stays():
    assert ThreadPolicy(8).decide(contended=3, seconds=1.0) == 5
    assert ThreadPolicy(2).decide(contended=2, seconds=1.0) == 1


def test_threads_return_after_a_quiet_time_that_doubles_while_it_was_too_short():
    policy = ThreadPolicy(2)
    policy.decide(contended=1, seconds=1.0)
    waits = []
    for _ in range(7):
        waits.append(0)
        while policy.decide(contended=0, seconds=1.0) == 1:
            waits[-1] += 1
        assert policy.decide(contended=2, seconds=1.0) == 1
    assert [wait + 1 for wait in waits] == [QUIET, 10, 20, 40, LONGEST_QUIET, LONGEST_QUIET, LONGEST_QUIET]


def test_a_growth_that_nothing_disturbs_ends_the_doubling():
    policy = ThreadPolicy(2)
    for contended in (1, *[0] * 5, 1, *[0] * 11):  # too early once, then not
        policy.decide(contended, seconds=1.0)
    assert policy.threads == 2
    assert policy.needed == QUIET


@pytest.fixture
def two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


def test_threads_follow_what_is_read(two_threads):
    seconds, times = [0.0], [{1: (0, 0), 2: (0, 0)}]
    adaptive = AdaptiveThreads(read=lambda: times[0], now=lambda: seconds[0])
    seconds[0], times[0] = 0.5, {1: (0, SECOND // 2), 2: (0, SECOND // 2)}
    adaptive.look()
    assert torch.get_num_threads() == 2, "an interval is not over"
    seconds[0], times[0] = 1.5, {1: (SECOND, SECOND // 2), 2: (0, 3 * SECOND // 2)}
    adaptive.look()
    assert torch.get_num_threads() == 1


def test_the_number_of_threads_returns_when_a_run_ends(two_threads):
    device = torch.device("cpu")
    with suppress(KeyboardInterrupt), prepared_cpu(TrainingRecipe(steps=1, retain_heap=False), device):
        torch.set_num_threads(1)
        raise KeyboardInterrupt
    assert torch.get_num_threads() == 2


def test_threads_stay_unless_it_is_wanted(two_threads):
    thread_adapter(is_wanted=False)()
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(not TASKS.exists(), reason="only Linux tells how long threads waited")
def test_the_system_tells_of_this_thread():
    assert read_thread_times()[os.getpid()][0] > 0


SPINS = (
    "import os; from tercet.__main__ import main; main(['recipes']); print(os.environ.get('GOMP_SPINCOUNT'))"
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "10000"), ({"OMP_WAIT_POLICY": "active"}, "None"), ({"GOMP_SPINCOUNT": "5"}, "5")],
)
def test_a_command_bounds_how_long_threads_spin_unless_the_user_does(given, expected):
    unset = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    command = [sys.executable, "-c", SPINS]
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=unset | given).stdout
    assert output.split()[-1] == expected
