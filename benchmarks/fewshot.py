"""Score choices side by side with lm-evaluation-harness: questions a second, their ratio, and equal picks.

    python benchmarks/fewshot.py                                  everything, some minutes on two cores
    python benchmarks/fewshot.py --cases 4x256 --rounds 9
    python benchmarks/fewshot.py --page docs/performance.md       and put the table there

`fewshot_sides.py` says what is scored and by whom, `measuring.py` how the time is taken. Let the machine rest
meanwhile.
"""

import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from command_line import rounds_parser
from fewshot_sides import ASKERS, ASKING_CASES, AskingCase, compare_scores
from measuring import Conditions, begin_result, in_fresh_process, measure
from publishing import describe_run, keep, publish

RESULTS = Path(__file__).parent / "results" / "fewshot.json"

PEERS = ("harness", "harness-bf16", "prefix-cache")
"""What speeds are related to."""

HEAD = """\
| case | side | choices/s | slowest to fastest | over harness | its bf16 | prefix cache | difference | equal |
|---|---|--:|--:|--:|--:|--:|--:|--:|"""


def main(arguments: list[str]) -> int:
    """Measure what the arguments ask for, print it, and write it down."""
    options = parse(arguments)
    conditions = Conditions(options.threads, own_scheduler_group=not options.common_scheduler_group)
    result = begin_result(conditions, options.waits_for_rest, rounds=options.rounds, cases={})
    for name in options.cases:
        case = ASKING_CASES[name].shrunk() if options.smoke else ASKING_CASES[name]
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        scores = in_fresh_process(conditions, compare_scores, case)
        sides = measure(case, ASKERS, conditions, min(options.rounds, case.most_rounds))
        summarize(sides, case, scores)
        result["cases"][name] = {"case": asdict(case), "scores": scores, "sides": sides}
        keep(options.output, result)
    publish(render(result), options.page, __file__)
    return 0


def summarize(sides: dict[str, dict[str, Any]], case: AskingCase, scores: dict[str, Any]) -> None:
    """Add to each side's `seconds` its speed, its ratios, and how far its scores lie from the harness's."""
    choices = case.num_questions * case.num_choices
    for name, side in sides.items():
        speeds = [choices / seconds for seconds in side["seconds"]]
        side["choices_per_second"] = median(speeds)
        side["slowest"], side["fastest"] = min(speeds), max(speeds)
        side["precision"] = ASKERS[name].precision
        side["difference"] = scores["difference"][name]
        side["same_picks"] = scores["same_picks"][name]
    for side in sides.values():
        for peer in PEERS:
            side[f"ratio_to_{peer}"] = side["choices_per_second"] / sides[peer]["choices_per_second"]


def render(result: dict[str, Any]) -> str:
    """Write a run's result as Markdown: the machine, what was asked, the table."""
    return "\n".join(
        [
            *describe_run(result),
            "",
            *(
                f"- {name}: {case['scores']['parameters']:,} parameters on both sides; "
                f"{case['case']['num_questions']} questions of {case['case']['question_length']} tokens "
                f"behind {case['case']['prefix_length']} common ones, {case['case']['num_choices']} choices "
                f"each; {len(case['sides']['harness']['seconds'])} rounds"
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
        f"{side['choices_per_second']:,.1f}",
        f"{side['slowest']:,.1f} to {side['fastest']:,.1f}",
        *(f"{side[f'ratio_to_{peer}']:.2f}x" for peer in PEERS),
        f"{side['difference']:.0e}",
        f"{side['same_picks']:.0%}",
    ]
    return f"| {' | '.join(cells)} |"


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = rounds_parser(__doc__, RESULTS)
    parser.add_argument(
        "--cases", nargs="+", choices=ASKING_CASES, default=list(ASKING_CASES), metavar="CASE"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
