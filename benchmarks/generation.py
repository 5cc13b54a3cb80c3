"""Generate side by side with the stock model: tokens per second, their ratio, and whether texts are the same.

    python benchmarks/generation.py                                  everything, ten minutes on two cores
    python benchmarks/generation.py --cases 4x256 --rounds 9
    python benchmarks/generation.py --page docs/performance.md       and put the table there

`generation_sides.py` says what is generated and by whom, `measuring.py` how the time is taken. Let the
machine rest meanwhile.
"""

import sys
import time
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch
from command_line import rounds_parser
from generation_sides import WRITERS, WRITING_CASES, WritingCase, compare_texts
from measuring import Conditions, begin_result, in_fresh_process, measure
from publishing import describe_run, keep, publish

RESULTS = Path(__file__).parent / "results" / "generation.json"

HEAD = """\
| case | side | tokens/s | slowest to fastest | over stock | over stock-bf16 | weights, GB/s | same tokens |
|---|---|--:|--:|--:|--:|--:|--:|"""


def main(arguments: list[str]) -> int:
    """Measure what the arguments ask for, print it, and write it down."""
    options = parse(arguments)
    conditions = Conditions(options.threads, own_scheduler_group=not options.common_scheduler_group)
    result = begin_result(conditions, options.waits_for_rest, rounds=options.rounds, cases={})
    result["bandwidth"] = in_fresh_process(conditions, measure_bandwidth)
    for name in options.cases:
        case = WRITING_CASES[name].shrunk() if options.smoke else WRITING_CASES[name]
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        texts = in_fresh_process(conditions, compare_texts, case)
        sides = measure(case, WRITERS, conditions, options.rounds)
        summarize(sides, case, texts)
        result["cases"][name] = {"case": asdict(case), "texts": texts, "sides": sides}
        keep(options.output, result)
    publish(render(result), options.page, __file__)
    return 0


def summarize(sides: dict[str, dict[str, Any]], case: WritingCase, texts: dict[str, Any]) -> None:
    """Add to each side's `seconds` its speed, its ratio to the stock sides, and how fast it reads weights."""
    for name, side in sides.items():
        steps = [case.num_new_tokens / seconds for seconds in side["seconds"]]
        side["tokens_per_second"] = median(steps) * case.batch_size
        side["slowest"], side["fastest"] = min(steps) * case.batch_size, max(steps) * case.batch_size
        side["precision"] = WRITERS[name].precision
        weight_bytes = texts["parameters"] * (2 if side["precision"] == "bf16" else 4)
        side["bytes_per_second"] = median(steps) * weight_bytes
        side["same_tokens"] = texts["same_tokens"][name]
    for side in sides.values():
        for peer in ("stock", "stock-bf16"):
            side[f"ratio_to_{peer}"] = side["tokens_per_second"] / sides[peer]["tokens_per_second"]


def measure_bandwidth() -> float:
    """Read 256 MiB some times: bytes per second, at best."""
    numbers = torch.ones(2**26)
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        numbers.sum()
        seconds.append(time.perf_counter() - start)
    return numbers.nbytes / min(seconds)


def render(result: dict[str, Any]) -> str:
    """Write a run's result as Markdown: the machine, the texts, the table."""
    return "\n".join(
        [
            *describe_run(result, f"memory is read at {result['bandwidth'] / 1e9:.0f} GB/s"),
            "",
            *(
                f"- {name}: {case['texts']['parameters']:,} parameters on both sides; "
                f"{case['texts']['different_tokens']:.0f} different tokens in a text of "
                f"{case['texts']['num_new_tokens']}"
                for name, case in result["cases"].items()
            ),
            "",
            HEAD,
            *(
                _row(case_name, side_name, side)
                for case_name, case in result["cases"].items()
                for side_name, side in case["sides"].items()
            ),
        ]
    )


def _row(case: str, name: str, side: dict[str, Any]) -> str:
    cells = [
        case,
        f"{name} ({side['precision']})",
        f"{side['tokens_per_second']:,.0f}",
        f"{side['slowest']:,.0f} to {side['fastest']:,.0f}",
        f"{side['ratio_to_stock']:.2f}x",
        f"{side['ratio_to_stock-bf16']:.2f}x",
        f"{side['bytes_per_second'] / 1e9:.1f}",
        f"{side['same_tokens']:.0%}",
    ]
    return f"| {' | '.join(cells)} |"


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = rounds_parser(__doc__, RESULTS)
    parser.add_argument(
        "--cases", nargs="+", choices=WRITING_CASES, default=list(WRITING_CASES), metavar="CASE"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
