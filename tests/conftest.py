"""How hard property tests try: a quick and fixed search in every run, a long and random one if slow."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

TIMES_SLOW = 30
"""How many times more examples the slow search takes."""


@pytest.fixture(params=["quick", pytest.param("slow", marks=pytest.mark.slow)])
def effort(request) -> Callable[[int], settings]:
    """Give the settings of a property test by the number of examples of its quick search."""
    is_quick = request.param == "quick"
    return lambda examples: settings(
        max_examples=examples if is_quick else TIMES_SLOW * examples,
        derandomize=is_quick,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
