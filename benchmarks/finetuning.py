"""Fine-tune one real checkpoint with transformers' Trainer and with ours: equal scores, and in which time.

    python benchmarks/finetuning.py --model FOLDER --data data        on the shared data sets, about an hour
    python benchmarks/finetuning.py --model ... --data ... --tasks cola --seeds 1 --page docs/performance.md

Both sides begin with the same stock BERT, learn from the same rows for as many epochs with the same rate,
batch size, schedule and seeds, are measured after every epoch, keep the best weights, and are scored by the
same functions. The clock runs from the files to the scores: reading, tokenizing, training, measuring, saving.
With --others, the models of both sides are scored on further rows, too, which none has learned from.

stock          Trainer as shipped: float32, batches padded to their longest row
stock-tuned    bfloat16, rows of like length batched together, freed memory kept
tercet         `tercet finetune`, `precision: auto`

Runs take turns, each in a process of its own. A finished run is kept in --folder and not repeated.
"""

import json
import sys
from argparse import Namespace
from functools import partial
from hashlib import sha256
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from command_line import benchmark_parser
from finetuning_judging import JUDGED, judge
from finetuning_sides import SIDES, TASKS, Contest
from measuring import Conditions, begin_result, in_fresh_process, turns
from publishing import describe_run, keep, publish

RESULTS = Path(__file__).parent / "results" / "finetuning.json"
KEPT = "result.json"
"""In a run's folder: what came of it."""

HEAD = """\
| task | score | side | validation rows | other rows | seconds, median | over stock | over best stock |
|---|---|---|--:|--:|--:|--:|--:|"""


def main(arguments: list[str]) -> int:
    """Run everything in turns, print the table, and write it down."""
    options = parse(arguments)
    conditions = Conditions(options.threads, own_scheduler_group=not options.common_scheduler_group)
    result = begin_result(
        conditions, options.waits_for_rest, rounds=options.seeds, model=options.model.name, tasks={}
    )
    folder = options.folder.resolve()
    for name in options.tasks:
        contest = Contest(name, options.model.resolve(), options.data.resolve(), options.rows, options.epochs)
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in options.sides}
        for number, side in enumerate(turns(options.sides, options.seeds)):
            seed = number // len(options.sides)
            run = folder / folder_name(contest, side, seed, conditions)
            if side != "stock" or seed < options.stock_seeds or (run / KEPT).exists():
                told = once(contest, side, seed, conditions, run)
                runs[side].append(told | further(contest, run, options.others, conditions))
        result["tasks"][name] = {"criterion": contest.criterion, "rows": options.rows, "sides": runs}
        keep(options.output, result)
    publish(render(result), options.page, __file__)
    return 0


def folder_name(contest: Contest, side: str, seed: int, conditions: Conditions) -> str:
    """Name the folder of a run, so that equal ones find what was kept."""
    digest = sha256(repr((contest, side, seed, conditions)).encode()).hexdigest()[:8]
    return f"{contest.task}-{side}-{seed}-{digest}"


def once(contest: Contest, side: str, seed: int, conditions: Conditions, run: Path) -> dict[str, Any]:
    """Carry out one run in a process of its own, or find what an equal one gave before."""
    kept = run / KEPT
    if not kept.exists():
        print(f"fine-tuning: {run.name} ...", file=sys.stderr, flush=True)
        told = in_fresh_process(conditions, partial(SIDES[side], contest, seed), run)
        kept.write_text(json.dumps(told) + "\n", encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8"))


def further(contest: Contest, run: Path, num_rows: int, conditions: Conditions) -> dict[str, float]:
    """Score a run's model on rows that nobody learned from, or find what was found before."""
    if not num_rows or contest.task not in JUDGED:
        return {}
    kept = run / f"others-{num_rows}.json"
    if not kept.exists():
        score = in_fresh_process(conditions, judge, contest, run, num_rows)
        kept.write_text(json.dumps({"score_on_others": score}) + "\n", encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8"))


def render(result: dict[str, Any]) -> str:
    """Write what was measured as Markdown."""
    return "\n".join([*describe_run(result), "", HEAD, *rows_of(result)])


def rows_of(result: dict[str, Any]) -> list[str]:
    """Write a line for each task and side."""
    lines = []
    for task, told in result["tasks"].items():
        times = {side: sorted(run["seconds"] for run in runs) for side, runs in told["sides"].items()}
        medians = {side: seconds[len(seconds) // 2] for side, seconds in times.items()}
        stock = [medians[side] for side in medians if side.startswith("stock")]
        for side, runs in told["sides"].items():
            cells = [
                f"{task} ({told['rows']:,} rows)",
                told["criterion"].replace("_", " "),
                side,
                across_seeds(runs, "score"),
                across_seeds(runs, "score_on_others"),
                f"{medians[side]:,.0f}",
                f"{medians['stock'] / medians[side]:.2f}x" if "stock" in medians else "",
                f"{min(stock) / medians[side]:.2f}x" if stock else "",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def across_seeds(runs: list[dict[str, Any]], name: str) -> str:
    """Write the mean of a score over seeds and its deviation; nothing where it was not measured."""
    scores = [run[name] for run in runs if name in run]
    if not scores:
        return ""
    return f"{mean(scores):.4g}" + (f" ± {stdev(scores):.2g}" if len(scores) > 1 else "")


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = benchmark_parser(__doc__, RESULTS)
    parser.add_argument("--model", type=Path, required=True, help="folder of a stock BERT")
    parser.add_argument("--data", type=Path, required=True, help="folder with sst2, mrpc, ...")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), metavar="SIDE")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each side")
    parser.add_argument("--stock-seeds", type=int, default=3, help="runs of Trainer as shipped, the slowest")
    parser.add_argument("--rows", type=int, default=4000, help="rows to learn from, at most")
    parser.add_argument(
        "--others",
        type=int,
        default=0,
        help="rows of the training file to score on that were not learned from",
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("runs/finetuning"), help="where runs are kept")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
