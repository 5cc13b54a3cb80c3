"""Train side by side with the stock models: real tokens per second, their ratio, and peak memory.

    python benchmarks/pretraining.py                                  everything, ten minutes on two cores
    python benchmarks/pretraining.py --cases encoder --rounds 9
    python benchmarks/pretraining.py --page docs/performance.md       and put the table there

`cases.py` says what is trained, `sides.py` by whom, `measuring.py` how the time is taken, and `parity.py`
proves that the models are the same. Let the machine rest meanwhile.
"""

import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from cases import CASES, Case
from command_line import rounds_parser
from measuring import Conditions, begin_result, in_fresh_process, measure, measure_peaks, present_device
from parity import compare
from publishing import keep, publish, render, summarize
from sides import SIDES

from tercet.training.packing import sequence_lengths
from tercet.training.precision import choose_precision

RESULTS = Path(__file__).parent / "results" / "pretraining.json"


def main(arguments: list[str]) -> int:
    """Measure what the arguments ask for, print it, and write it down."""
    options = parse(arguments)
    conditions = Conditions(options.threads, options.heap, not options.common_scheduler_group)
    result = begin_result(conditions, options.waits_for_rest, rounds=options.rounds, cases={})
    result["peaks"] = in_fresh_process(conditions, measure_peaks)
    for name in options.cases:
        case = CASES[name].shrunk() if options.smoke else CASES[name]
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        result["cases"][name] = measure_case(case, options, conditions, result["peaks"])
        keep(options.output, result)
    publish(render(result), options.page, __file__)
    return 0


def measure_case(
    case: Case, options: Namespace, conditions: Conditions, peaks: dict[str, float]
) -> dict[str, Any]:
    """Compare the models, time all sides, and relate them to each other and to the machine."""
    parity = in_fresh_process(conditions, compare, case)
    sides = measure(case, {name: SIDES[name] for name in options.sides}, conditions, options.rounds)
    device = present_device()
    for name, side in sides.items():
        side["precision"] = choose_precision(SIDES[name].precision, device)
    tokens = int(sequence_lengths(case.pool()).sum())
    summarize(sides, tokens, parity["flops_per_token"], peaks)
    return {"case": asdict(case), "tokens": tokens, "parity": parity, "sides": sides}


def usual_sides() -> list[str]:
    """Name all sides but the compiled stock model on a CPU, where it takes minutes and was never faster."""
    return [name for name in SIDES if name != "stock-compiled" or torch.cuda.is_available()]


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = rounds_parser(__doc__, RESULTS)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=usual_sides(), metavar="SIDE")
    parser.add_argument("--heap", choices=("own", "default", "retained"), default="own", help=HEAP)
    return parser.parse_args(arguments)


HEAP = "keep freed memory as each side does on its own (stock does not, the others do), on none, or on all"

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
