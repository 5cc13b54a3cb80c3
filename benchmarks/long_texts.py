"""Read long texts side by side with transformers' BigBird: time, peak of memory, and how both grow.

    python benchmarks/long_texts.py                                  everything, ten minutes on two cores
    python benchmarks/long_texts.py --lengths 1024 4096 --rounds 9
    python benchmarks/long_texts.py --try                            tiny models: only to see that it runs
    python benchmarks/long_texts.py --page docs/performance.md       and put tables and curves there

`long_texts_sides.py` says who reads, `long_texts_growth.py` how time and memory grow, `measuring.py` how the
time is taken. Let the machine rest meanwhile.
"""

import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from command_line import benchmark_parser
from long_texts_growth import GROWTH_HEAD, draw, growth_rows, pays_from
from long_texts_sides import ReadingCase, blocks_per_query, readers_of
from measuring import Conditions, begin_result, measure
from publishing import describe_run, keep, publish

RESULTS = Path(__file__).parent / "results" / "long_texts.json"

LENGTHS = (1024, 2048, 4096, 8192, 16384)

WORKS = {"training": True, "forward": False}
"""What is timed, and whether it has a backward pass."""

HEAD = """\
| work | tokens | side | seconds | slowest to fastest | over stock | memory, MiB | stock's memory over it |
|---|--:|---|--:|--:|--:|--:|--:|"""


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
            sides = measure(case, readers_of(case), conditions, options.rounds)
            summarize(sides)
            blocks = blocks_per_query(case)
            result["cases"].append({"work": work, "case": asdict(case), "blocks": blocks, "sides": sides})
            keep(options.output, result)
    draw(result["cases"], options.output.with_suffix(".png"))
    text = render(result)
    if options.page:
        picture = options.page.with_name("long_texts.png")
        draw(result["cases"], picture)
        text = f"{text}\n\n![]({picture.name})"
    publish(text, options.page, __file__)
    return 0


def summarize(sides: dict[str, dict[str, Any]]) -> None:
    """Add to each side's `seconds` their median, and its ratios to those of the stock model."""
    for side in sides.values():
        side["median"] = median(side["seconds"])
    for side in sides.values():
        side["ratio_to_stock"] = sides["stock"]["median"] / side["median"]
        side["memory_ratio"] = sides["stock"]["memory_mib"] / max(side["memory_mib"], 1)


def render(result: dict[str, Any]) -> str:
    """Write a run's result as Markdown: the machine, the times, their growth."""
    cases = result["cases"]
    return "\n".join(
        [
            *describe_run(result),
            "",
            *_densities(cases),
            *(f"- {work}: {pays_from(cases, work)}" for work in WORKS),
            "",
            HEAD,
            *(
                _row(case["work"], case["case"]["length"], name, side)
                for case in sorted(cases, key=lambda case: list(WORKS).index(case["work"]))
                for name, side in case["sides"].items()
            ),
            "",
            GROWTH_HEAD,
            *(row for work in WORKS for row in growth_rows(cases, work)),
        ]
    )


def _densities(cases: list[dict[str, Any]]) -> list[str]:
    """Return how many key blocks a query block attends to, by length."""
    counted = {case["case"]["length"]: case["blocks"] for case in cases}
    return [
        f"- {length:,} tokens: a block attends to {blocks['tercet']:.1f} blocks on average (tercet) "
        f"and {blocks['stock']:.1f} (stock)"
        for length, blocks in counted.items()
    ]


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
