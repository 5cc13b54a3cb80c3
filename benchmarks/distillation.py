"""Distil side by side with stock modules in the way of DistilBERT's script: tokens per second, their ratio.

    python benchmarks/distillation.py                                 some minutes on two cores
    python benchmarks/distillation.py --rounds 9 --page docs/performance.md

Teacher 12 layers x 256, student 6, 30,522 words, 16 sequences of at most 128 tokens in a batch; soft
targets at temperature 2, hidden tokens and cosines, weighing 5, 2 and 1. All read the same masked batches.

stock            both models on padded rows in float32, both heads on all tokens; then targets are selected,
                 for the loss of DistilBERT's script with `restrict_ce_to_mask` (written anew here: the script
                 itself is not run, and without that switch it compares soft targets of all tokens)
stock-bf16       the same in bfloat16 autocast
tercet           `tercet distill` with a live teacher, precision `auto`
tercet-cached    the same with a teacher that has read before, known for its 64 likeliest tokens

Sides take turns, each in a process of its own. Let the machine rest meanwhile.
"""

import sys
from argparse import Namespace
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from command_line import rounds_parser
from distillation_sides import CASE, SIDES, compare
from measuring import Conditions, begin_result, in_fresh_process, measure
from publishing import describe_run, keep, publish

from tercet.training.packing import sequence_lengths

RESULTS = Path(__file__).parent / "results" / "distillation.json"
HEAD = """\
| side | tokens/s | slowest to fastest | over stock | over stock-bf16 | memory, MiB |
|---|--:|--:|--:|--:|--:|"""


def main(arguments: list[str]) -> int:
    """Measure, print the table, and write it down."""
    options = parse(arguments)
    case = replace(CASE.shrunk(), num_hidden_layers=2) if options.smoke else CASE
    conditions = Conditions(options.threads, own_scheduler_group=not options.common_scheduler_group)
    result = begin_result(conditions, options.waits_for_rest, rounds=options.rounds, case=asdict(case))
    result["parity"] = in_fresh_process(conditions, compare, case)
    result["tokens"] = int(sequence_lengths(case.pool()).sum())
    result["sides"] = measure(case, SIDES, conditions, options.rounds)
    for side in result["sides"].values():
        side["tokens_per_second"] = [result["tokens"] / seconds for seconds in side["seconds"]]
    keep(options.output, result)
    publish(render(result), options.page, __file__)
    return 0


def render(result: dict[str, Any]) -> str:
    """Write what was measured as Markdown."""
    speeds = {name: median(side["tokens_per_second"]) for name, side in result["sides"].items()}
    parity = result["parity"]
    lines = []
    for name, side in result["sides"].items():
        own = side["tokens_per_second"]
        ratios = [f"{speeds[name] / speeds[peer]:.2f}x" for peer in ("stock", "stock-bf16")]
        spread = f"{min(own):,.0f} to {max(own):,.0f}"
        cells = [name, f"{speeds[name]:,.0f}", spread, *ratios, f"{side['memory_mib']:,.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    told = (
        f"Loss of one batch {parity['stock']:.6f} (stock) and {parity['tercet']:.6f} (Tercet), relative "
        f"difference {parity['difference']:.0e}, in float32 without dropout."
    )
    return "\n".join([*describe_run(result), "", told, "", HEAD, *lines])


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = rounds_parser(__doc__, RESULTS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
