"""Read long texts side by side with transformers' BigBird: time, peak of memory, and how both grow.

    python benchmarks/long_texts.py                                  everything, half an hour on two cores
    python benchmarks/long_texts.py --lengths 1024 4096 --rounds 9
    python benchmarks/long_texts.py --try                            tiny models: only to see that it runs
    python benchmarks/long_texts.py --page docs/performance.md       and put the table there

`readers.py` says who reads, `measuring.py` how the time is taken. Let the machine rest meanwhile.
"""

import sys
from argparse import Namespace
from dataclasses import asdict
from itertools import pairwise
from math import log
from pathlib import Path
from statistics import median
from typing import Any

from command_line import benchmark_parser
from measuring import Conditions, begin_result, measure
from publishing import describe_run, keep, publish
from readers import ReadingCase, readers_of

RESULTS = Path(__file__).parent / "results" / "long_texts.json"

LENGTHS = (1024, 2048, 4096, 8192, 16384)

WORKS = {"training": True, "forward": False}
"""What is timed, and whether it has a backward pass."""

HEAD = """\
| work | tokens | side | seconds | slowest to fastest | over stock | memory, MiB | stock's memory over it |
|---|--:|---|--:|--:|--:|--:|--:|"""

GROWTH_HEAD = """\
| work | side | growth of time |
|---|---|--:|"""


def main(arguments: list[str]) -> int:
    """Measure what the arguments ask for, print it, and write it down."""
    options = parse(arguments)
    conditions = Conditions(options.threads, own_scheduler_group=not options.common_scheduler_group)
    result = begin_result(conditions, options.waits_for_rest, rounds=options.rounds, cases=[])
    for length in options.lengths:
        for work, trains in WORKS.items():
            case = ReadingCase(length, trains)
            case = case.shrunk() if options.is_trial else case
            print(f"measuring {work}, {length} tokens ...", file=sys.stderr, flush=True)
            sides = measure(case, readers_of(length), conditions, options.rounds)
            summarize(sides)
            result["cases"].append({"work": work, "case": asdict(case), "sides": sides})
            keep(options.output, result)
    publish(render(result), options.page, __file__)
    return 0


def summarize(sides: dict[str, dict[str, Any]]) -> None:
    """Add to each side's `seconds` their median, and its ratios to those of the stock model."""
    for side in sides.values():
        side["median"] = median(side["seconds"])
    for side in sides.values():
        side["ratio_to_stock"] = sides["stock"]["median"] / side["median"]
        side["memory_ratio"] = sides["stock"]["memory_mib"] / max(side["memory_mib"], 1)


def growth(cases: list[dict[str, Any]], work: str, side: str) -> list[str]:
    """Say by which power of the length the time of a side grows, from each length to the next."""
    medians = {
        case["case"]["length"]: case["sides"][side]["median"]
        for case in cases
        if case["work"] == work and side in case["sides"]
    }
    return [
        f"{begin:,} to {end:,}: {log(medians[end] / medians[begin]) / log(end / begin):.2f}"
        for begin, end in pairwise(sorted(medians))
    ]


def render(result: dict[str, Any]) -> str:
    """Write a run's result as Markdown: the machine, the times, their growth."""
    cases = result["cases"]
    sides = dict.fromkeys(name for case in cases for name in case["sides"])
    works = dict.fromkeys(case["work"] for case in cases)
    return "\n".join(
        [
            *describe_run(result),
            "",
            HEAD,
            *(
                _row(case["work"], case["case"]["length"], name, side)
                for case in sorted(cases, key=lambda case: list(WORKS).index(case["work"]))
                for name, side in case["sides"].items()
            ),
            "",
            "Growth is the power of the length by which the time grows: 1 is linear, 2 quadratic.",
            "",
            GROWTH_HEAD,
            *(
                f"| {work} | {side} | {'; '.join(growth(cases, work, side))} |"
                for work in works
                for side in sides
            ),
        ]
    )


def _row(work: str, length: int, name: str, side: dict[str, Any]) -> str:
    cells = [
        work,
        f"{length:,}",
        name,
        f"{side['median']:.3f}",
        f"{max(side['seconds']):.3f} to {min(side['seconds']):.3f}",
        f"{side['ratio_to_stock']:.2f}x",
        f"{side['memory_mib']:,.0f}",
        f"{side['memory_ratio']:.2f}x",
    ]
    return f"| {' | '.join(cells)} |"


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = benchmark_parser(__doc__, RESULTS)
    parser.add_argument("--rounds", type=int, default=5, help="passes of every side that count")
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS), metavar="TOKENS")
    parser.add_argument("--try", dest="is_trial", action="store_true", help="tiny models")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
