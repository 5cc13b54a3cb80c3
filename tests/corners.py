"""Grids of parameters of which the ordinary tests take some points, and the slow ones all others."""

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest


def corners(*values: Iterable[Any], keep: Callable[..., bool]) -> list:
    """List all combinations of values; those that `keep` does not choose are slow.

    Args:
        values: Of each parameter.
        keep: Takes a combination, and tells whether the ordinary tests try it.
    """
    return [
        pytest.param(*point, marks=() if keep(*point) else pytest.mark.slow) for point in product(*values)
    ]
