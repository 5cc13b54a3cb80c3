"""Every test begins as a fresh process would: accelerate keeps its first precision for good."""

import pytest
from accelerate.state import AcceleratorState


@pytest.fixture(autouse=True)
def fresh_accelerator():
    """Forget the precision that an earlier test chose."""
    AcceleratorState._reset_state(reset_partial_state=True)
