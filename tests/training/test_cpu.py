"""How long threads spin while they wait for each other."""

import os
import subprocess
import sys

import pytest

COMMAND = "from tercet.__main__ import main; main(['recipes'])"
FUNCTION = """
from contextlib import suppress
import tercet
with suppress(ValueError):
    tercet.finetune("no-such-recipe.yaml")
"""
SPINS = "\nimport os; print(os.environ.get('GOMP_SPINCOUNT'))"


@pytest.mark.parametrize("program", [COMMAND, FUNCTION], ids=["command", "function"])
@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "10000"), ({"OMP_WAIT_POLICY": "active"}, "None"), ({"GOMP_SPINCOUNT": "5"}, "5")],
)
def test_threads_spin_a_bounded_time_unless_the_user_says_otherwise(program, given, expected):
    unset = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    command = [sys.executable, "-c", program + SPINS]
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=unset | given).stdout
    assert output.split()[-1] == expected


SLEEPER = """
import os, sys, time, torch
from tercet import calls
calls.bound_spinning()  # too late: torch is there
torch.set_num_threads(max(2, len(os.sched_getaffinity(0)) // 2))
calls.share_in_use = lambda: float(sys.argv[1])
calls.sleep_where_busy()
x, spent = torch.ones(2**20), []
for _ in range(40):
    x.add_(1)
    began = time.process_time()
    time.sleep(0.01)
    spent.append(time.process_time() - began)
print(sorted(spent)[20])
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.cpu_count() == 1, reason="a team of GNU's OpenMP is needed"
)
def test_threads_sleep_at_once_on_a_busy_machine_although_torch_was_there_before():
    """What waiting costs beside other programs, in processor time of a hundredth of a second."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GOMP_", "OMP_"))}
    spent = {}
    for share in ("0", "1"):
        command = [sys.executable, "-c", SLEEPER, share]
        told = subprocess.run(command, capture_output=True, text=True, check=True, env=kept)
        spent[share] = float(told.stdout)
        assert ("other programs use 100% of the processors" in told.stderr) == (share == "1")
    assert spent["1"] < spent["0"] / 2
