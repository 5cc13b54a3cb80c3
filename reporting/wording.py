"""How models and scores are written in a report."""

import math
from pathlib import Path


def name_of_model(path: str) -> str:
    """Say which model a path or id means: runs write theirs into folders that are all called `model`.

    >>> name_of_model("runs/encoder-english/model"), name_of_model("google-bert/bert-base-uncased")
    ('encoder-english', 'bert-base-uncased')
    """
    *above, last = Path(path).parts
    return above[-1] if last == "model" and above else last


def format_score(value: float | None, digits: int = 4) -> str:
    """Write a score, or a dash where it is not defined."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}g}"
