"""Train on a quiet machine, and beside other programs that take all of its cores: what is left of the speed?

    python benchmarks/busy_neighbour.py                              six minutes on two cores
    python benchmarks/busy_neighbour.py --page docs/performance.md   and put the table there

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
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from cases import CASES, Case
from command_line import rounds_parser
from measuring import Conditions, Worker, begin_result, turns
from publishing import describe_run, keep, publish
from sides import SIDES, Side, prepare_tercet

from tercet.training.packing import sequence_lengths
from tercet.training.precision import fastest_float32_products

RESULTS = Path(__file__).parent / "results" / "busy_neighbour.json"

SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
"""What tells OpenMP's threads how long they spin."""

BOUNDED = {"GOMP_SPINCOUNT": "10000"}
"""What every `tercet` command sets."""

COUNT = "while True: pass"
"""A neighbour."""

SECONDS = 10.0
"""How long a turn is, at least."""

ADAPTIVE = Side(
    partial(prepare_tercet, precision="auto", adapts_threads=True),
    "auto",
    retains_heap=True,
    products=fastest_float32_products,
)


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
    "the same, `training.adaptive_threads=true`": Way(ADAPTIVE, BOUNDED),
    "the same, one thread": Way(SIDES["tercet"], BOUNDED, threads=1),
}

HEAD = """\
| training | alone, tokens/s | slowest to fastest | on a busy machine | slowest to fastest | ratio |
|---|--:|--:|--:|--:|--:|"""


def main(arguments: list[str]) -> int:
    """Measure all ways, alone and beside others, print the table, and write it down."""
    options = parse(arguments)
    conditions = Conditions(options.threads, own_scheduler_group=False)
    result = begin_result(
        conditions,
        options.waits_for_rest,
        rounds=options.rounds,
        neighbours=options.neighbours,
        case=options.case,
    )
    case = CASES[options.case].shrunk() if options.smoke else CASES[options.case]
    result["speeds"] = measure_ways(case, options)
    keep(options.output, result)
    publish(render(result), options.page, __file__)
    return 0


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
    """Let a way train for some seconds; its tokens per second."""
    begun, passes = time.perf_counter(), 0
    while passes == 0 or time.perf_counter() - begun < seconds:
        worker.work_once()
        passes += 1
    return passes * tokens / (time.perf_counter() - begun)


@contextmanager
def neighbours(number: int) -> Iterator[list[subprocess.Popen]]:
    """Let that many other programs keep processors busy."""
    command = [sys.executable, "-c", COUNT]
    programs = [subprocess.Popen(command, start_new_session=True) for _ in range(number)]
    try:
        yield programs
    finally:
        for program in programs:
            program.kill()
            program.wait()


def render(result: dict[str, Any]) -> str:
    """Write the result as Markdown: the machine, and the table."""
    rows = [row(name, speeds["alone"], speeds["beside"]) for name, speeds in result["speeds"].items()]
    others = f"{result['neighbours']} other busy programs; case: {result['case']}"
    return "\n".join([*describe_run(result, others), "", HEAD, *rows])


def row(name: str, alone: list[float], beside: list[float]) -> str:
    """Write a way's row."""
    cells = [name]
    for speeds in (alone, beside):
        cells += [f"{median(speeds):,.0f}", f"{min(speeds):,.0f} to {max(speeds):,.0f}"]
    return f"| {' | '.join([*cells, f'{median(beside) / median(alone):.0%}'])} |"


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = rounds_parser(__doc__, RESULTS)
    parser.set_defaults(rounds=3)
    parser.add_argument("--case", choices=CASES, default="encoder", help="what is trained (%(default)s)")
    parser.add_argument("--neighbours", type=int, default=os.cpu_count(), help="busy programs (%(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
