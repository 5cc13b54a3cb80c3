"""Train on a quiet machine, and beside other programs that take all of its cores: what is left of the speed?

Every way to train is a process of its own, as in `measuring.py`, and they take turns. Then as many programs
that do nothing but count are started as there are processors, each in a session of its own, as from another
terminal, and the turns are repeated. Nothing raises any priority. Let the machine rest meanwhile.
"""

import os
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from cases import CASES, Case
from measuring import Conditions, Worker, turns
from publishing import Result
from sides import SIDES, Side
from speed import Benchmark

from tercet.training.packing import sequence_lengths

SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
"""What tells OpenMP's threads how long they spin."""

BOUNDED = {"GOMP_SPINCOUNT": "10000"}
"""What every `tercet` command sets."""

COUNT = "while True: pass"
"""A neighbour."""

SECONDS = 10.0
"""How long a turn is, at least."""


@dataclass(frozen=True)
class Way:
    """One way to train."""

    side: Side
    environment: Mapping[str, str]
    threads: int | None = None
    """How many threads compute; as many as there are processors if left out."""


WAYS = {
    "stock": Way(SIDES["stock"], {}),
    "Tercet, OpenMP's own spinning": Way(SIDES["tercet"], {}),
    "Tercet, as `tercet` commands run it": Way(SIDES["tercet"], BOUNDED),
    "the same, one thread": Way(SIDES["tercet"], BOUNDED, threads=1),
}


def measure_case(case: Case, options: Namespace, conditions: Conditions, result: Result) -> dict[str, Any]:
    """Measure all ways, alone and beside others."""
    result |= {"neighbours": options.neighbours}
    return {"sides": relate(measure_ways(case, options))}


def relate(ways: Mapping[str, dict[str, list[float]]]) -> dict[str, dict[str, Any]]:
    """Add to each way's speeds their medians, their bounds, and what is left beside others."""
    sides: dict[str, dict[str, Any]] = {}
    for name, found in ways.items():
        sides[name] = found | {"ratio": median(found["beside"]) / median(found["alone"])}
        for when, speeds in found.items():
            bounds = {f"slowest_{when}": min(speeds), f"fastest_{when}": max(speeds)}
            sides[name] |= bounds | {f"median_{when}": median(speeds)}
    return sides


def measure_ways(case: Case, options: Namespace) -> dict[str, dict[str, list[float]]]:
    """Return each way's tokens per second in every turn, `alone` and `beside`."""
    tokens = int(sequence_lengths(case.pool()).sum())
    seconds = 0.0 if options.smoke else SECONDS
    workers = {name: begin(case, way, options.threads) for name, way in WAYS.items()}
    speeds: dict[str, dict[str, list[float]]] = {name: {"alone": [], "beside": []} for name in WAYS}
    for worker in workers.values():
        worker.work_once()
    for name in turns(list(WAYS), options.rounds):
        speeds[name]["alone"].append(turn(workers[name], tokens, seconds))
    with neighbours(options.neighbours):
        for name in turns(list(WAYS), options.rounds):
            speeds[name]["beside"].append(turn(workers[name], tokens, seconds))
    for worker in workers.values():
        worker.finish()
    return speeds


def begin(case: Case, way: Way, threads: int) -> Worker:
    """Start a way's process in its environment, which OpenMP reads when it is loaded."""
    earlier = dict(os.environ)
    for name in SETTINGS:
        os.environ.pop(name, None)
    os.environ.update(way.environment)
    try:
        return Worker(case, way.side, Conditions(way.threads or threads, own_scheduler_group=False))
    finally:
        os.environ.clear()
        os.environ.update(earlier)


def turn(worker: Worker, tokens: int, seconds: float) -> float:
    """Train in one way for some seconds; return its tokens per second."""
    begun, passes = time.perf_counter(), 0
    while passes == 0 or time.perf_counter() - begun < seconds:
        worker.work_once()
        passes += 1
    return passes * tokens / (time.perf_counter() - begun)


@contextmanager
def neighbours(number: int) -> Iterator[list[subprocess.Popen]]:
    """Run that many other programs, which keep processors busy."""
    command = [sys.executable, "-c", COUNT]
    programs = [subprocess.Popen(command, start_new_session=True) for _ in range(number)]
    try:
        yield programs
    finally:
        for program in programs:
            program.kill()
            program.wait()


def describe_neighbours(result: Result) -> list[str]:
    """Describe what was trained, and beside how many programs."""
    return [f"{result['neighbours']} other busy programs; case: {', '.join(result['cases'])}"]


BENCHMARK = Benchmark(
    CASES,
    measure_case,
    {
        "training": "{side}",
        "alone, tokens/s": "{median_alone:,.0f}",
        "slowest to fastest": "{slowest_alone:,.0f} to {fastest_alone:,.0f}",
        "on a busy machine": "{median_beside:,.0f}",
        "slowest to fastest ": "{slowest_beside:,.0f} to {fastest_beside:,.0f}",
        "ratio": "{ratio:.0%}",
    },
    alignment="lr",
    options={"--neighbours": {"type": int, "default": os.cpu_count(), "help": "busy programs"}},
    defaults={"rounds": 3, "cases": ["encoder"], "common_scheduler_group": True},
    remarks=describe_neighbours,
)
