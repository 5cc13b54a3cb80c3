"""A study is run: its method with one seed after another. What comes back is plain data."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tercet.training.devices.environment import versions

from .study import Curve, Measured, Study, require_switch
from .verdicts import interval_of


def run_study(
    study: Study,
    broken: str = "",
    seeds: int | None = None,
    say: Callable[[str], object] = lambda line: None,
    **sizes: Any,
) -> dict[str, Any]:
    """Measure a claim with several seeds.

    Args:
        study: The study.
        broken: One of its switches, or none.
        seeds: How many; by default as many as the study says.
        say: Is told of progress.
        **sizes: What the method has smaller or larger than usual.

    Returns:
        `values` of each seed by their names, `curves` of the picture, the processor time, and versions.

    Raises:
        ValueError: The study has no such switch.
    """
    require_switch(study, broken)
    number = study.seeds if seeds is None else seeds
    start, runs = time.process_time(), []
    for seed in range(number):
        say(f"{study.name}: seed {seed + 1} of {number}")
        torch.manual_seed(seed)
        runs.append(study.method(seed, broken, **sizes))
    if missing := [name for name in study.expected if name not in runs[0].values]:
        raise AssertionError(f"{study.name} does not measure {missing}")
    return {
        "study": study.name,
        "broken": broken,
        "seeds": number,
        "values": {name: [run.values[name] for run in runs] for name in runs[0].values},
        "curves": joined_curves(runs),
        "processor_seconds": round(time.process_time() - start, 1),
        "versions": versions(),
    }


def joined_curves(runs: Sequence[Measured]) -> list[dict[str, Any]]:
    """Average the curves of all seeds; each point is x, the mean, and the ends of its interval."""
    return [
        {
            "title": axes[0],
            "x_label": axes[1],
            "lines": {
                name: averaged([run.curves[axes][name] for run in runs]) for name in runs[0].curves[axes]
            },
        }
        for axes in runs[0].curves
    ]


def averaged(curves: Sequence[Curve]) -> list[list[float]]:
    """Average curves over the same places."""
    return [
        [points[0][0], *(float(f"{end:.5g}") for end in interval_of([y for _, y in points]))]
        for points in zip(*curves, strict=True)
    ]
