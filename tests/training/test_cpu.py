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
