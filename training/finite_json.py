"""Scores as JSON, which has no word for numbers that are not finite."""

import math
from typing import Any


def as_json(data: Any) -> Any:
    """Replace what is not finite in nested plain data by `null`: JSON has no other word for it."""
    if isinstance(data, dict):
        return {name: as_json(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [as_json(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def as_scores(data: dict[str, float | None]) -> dict[str, float]:
    """Read scores back that `as_json` has written: what was not finite is not a number now."""
    return {name: math.nan if value is None else value for name, value in data.items()}
