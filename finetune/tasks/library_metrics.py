"""Metrics of the `evaluate` library, computed beside a task's own: for scores that others report by them.

A name is that of one of the library's own modules (`accuracy`, `sacrebleu`), whose code is Hugging Face's. A
local folder or script, or a repository of somebody else on the Hub, is run only if the recipe trusts it.
Their scores are called `evaluate/MODULE/SCORE`. They are reported, and choose nothing.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from evaluate import EvaluationModule

PREFIX = "evaluate/"
"""How the names of their scores begin."""

Modules = Mapping[str, "EvaluationModule"]
"""Name without folders and ending -> module."""


def load_metrics(names: Sequence[str], *, trust_remote_code: bool = False) -> Modules:
    """Load modules, which runs their code; predictions are kept in memory until they are scored."""
    if not names:
        return {}
    import evaluate

    modules: dict[str, EvaluationModule] = {}
    for name in names:
        if not (trust_remote_code or is_own(name)):
            raise ValueError(
                f"task.metrics names {name!r}, which brings its own code: review it, then set "
                "trust_remote_code=true"
            )
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


def is_own(name: str) -> bool:
    """Return whether a name is that of a module of the library, not of a file, a folder or a repository.

    `evaluate.load` takes a folder of the same name in the current folder first.

    >>> [is_own(name) for name in ("accuracy", "somebody/accuracy", "accuracy.py")]
    [True, False, False]
    """
    return name.isidentifier() and not Path(name).exists()


def library_scores(
    modules: Modules, predictions: Sequence[Any], references: Sequence[Any]
) -> dict[str, float]:
    """Compute all modules; what they give that is no number is left out."""
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
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def score_in_words(name: str) -> str:
    """Write the name of a library's score for a report.

    >>> score_in_words("evaluate/sacrebleu/score")
    'score (evaluate: sacrebleu)'
    """
    module, _, score = name.removeprefix(PREFIX).partition("/")
    return f"{score} (evaluate: {module})"
