"""Metrics of the `evaluate` library, computed beside a task's own: for scores that others report by them.

A name is that of a module on the Hub (`accuracy`, `sacrebleu`), or a local folder or script; its code is run.
Their scores are called `evaluate/MODULE/SCORE`. They are reported, and choose nothing.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import evaluate
import numpy as np
from evaluate import EvaluationModule

PREFIX = "evaluate/"
"""How the names of their scores begin."""

Modules = Mapping[str, EvaluationModule]
"""Name without folders and ending -> module."""


def load_metrics(names: Sequence[str]) -> Modules:
    """Load modules; predictions are kept in memory until they are scored.

    Raises:
        ValueError: One cannot be loaded, or two share a name.
    """
    modules: dict[str, EvaluationModule] = {}
    for name in names:
        if Path(name).stem in modules:
            raise ValueError(f"task.metrics has two modules called {Path(name).stem}: name one of them")
        try:
            modules[Path(name).stem] = evaluate.load(name, keep_in_memory=True)
        except Exception as error:  # the module is someone else's program
            raise ValueError(
                f"task.metrics names {name!r}, which evaluate.load cannot load ({first_of(error)}): name a "
                "module of the Hub, or a local folder or script, and install what it needs"
            ) from error
    return modules


def library_scores(
    modules: Modules, predictions: Sequence[Any], references: Sequence[Any]
) -> dict[str, float]:
    """Compute all modules; what they give that is no number is left out.

    Raises:
        ValueError: A module does not take such predictions.
    """
    scores: dict[str, float] = {}
    for name, module in modules.items():
        try:
            found = module.compute(predictions=list(predictions), references=list(references)) or {}
        except Exception as error:  # the module is someone else's program
            raise ValueError(
                f"task.metrics names {name}, which cannot score predictions such as {predictions[0]!r:.60} "
                f"({first_of(error)}): leave it out"
            ) from error
        numbers = {key: value for key, value in found.items() if isinstance(value, float | int | np.number)}
        scores |= {f"{PREFIX}{name}/{key}": float(value) for key, value in numbers.items()}
    return scores


def first_of(error: Exception) -> str:
    """Return the first line of what is wrong."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def score_in_words(name: str) -> str:
    """Write the name of a library's score for a report.

    >>> score_in_words("evaluate/sacrebleu/score")
    'score (evaluate: sacrebleu)'
    """
    module, _, score = name.removeprefix(PREFIX).partition("/")
    return f"{score} (evaluate: {module})"
