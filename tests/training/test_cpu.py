"""How long threads spin while they wait for each other."""

import os
import subprocess
import sys

import pytest

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
