"""What sparse attention loses, and what long contexts win: full, local and big bird attention on real tasks.

    python benchmarks/patterns_at_work.py --data data                    everything
    python benchmarks/patterns_at_work.py --data data --parts listops --seeds 1
    python benchmarks/patterns_at_work.py --data data --try              tiny models: only to see that it runs
    python benchmarks/patterns_at_work.py --data data --page docs/attention.md

listops    the value of nested lists of digits (Nangia and Bowman, 2018), from random weights
contexts   masked tokens of novels: trained with 512 and with 4,096 tokens of context, and judged with both
reviews    film reviews, good or bad, by the models of `contexts`, each with its own context

--data holds `synthetic/listops`, `pretrain_en` and `movie_reviews`; `patterns_at_work_tasks.py` says what is
trained. What is finished is kept in --folder and not repeated. With `--any-load` times are left out of the
tables: scores do not depend on the load, minutes do.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from command_line import benchmark_parser
from measuring import Conditions, begin_result
from patterns_at_work_tasks import FULL, TRIAL, Row, Scale, Workshop, contexts, listops, reviews
from publishing import describe_run, keep, publish

RESULTS = Path(__file__).parent / "results" / "patterns_at_work.json"

PARTS: dict[str, Callable[[Workshop], list[Row]]] = {
    "listops": listops,
    "contexts": contexts,
    "reviews": reviews,
}

TRIAL_NOTE = "**A trial: a few steps of tiny models. The scores mean nothing.**"


def main(arguments: list[str]) -> int:
    """Train what the arguments ask for, print the tables, and write them down."""
    options = parse(arguments)
    conditions = Conditions(options.threads, own_scheduler_group=not options.common_scheduler_group)
    scale = scale_of(options)
    shop = Workshop(options.data.resolve(), options.folder.resolve(), scale, conditions)
    waits = options.waits_for_rest and not options.is_trial
    result = begin_result(
        conditions, waits, rounds=options.seeds, is_trial=options.is_trial, is_timed=options.waits_for_rest,
        parts={},
    )  # fmt: skip
    for part in options.parts:
        result["parts"][part] = PARTS[part](shop)
        keep(options.output, result)
    publish(render(result), options.page, __file__)
    return 0


def render(result: dict[str, Any]) -> str:
    """Write what was found as Markdown: a table for each part, without its times if they were disturbed."""
    tables = {"listops": lists_table, "contexts": contexts_table, "reviews": reviews_table}
    lines = [*describe_run(result), *(["", TRIAL_NOTE] if result["is_trial"] else [])]
    for part, rows in result["parts"].items():
        table = tables[part](rows)
        lines += ["", *markdown(table if result["is_timed"] else [line[:-1] for line in table])]
    return "\n".join(lines)


def markdown(table: Sequence[Sequence[str]]) -> list[str]:
    """Write a table whose first line is its head; all columns but the first are numbers."""
    head, *body = [f"| {' | '.join(line)} |" for line in table]
    return [head, f"|---|{'--:|' * (len(table[0]) - 1)}", *body]


def lists_table(rows: Sequence[Row]) -> list[list[str]]:
    """Write the accuracies of nested lists."""
    head = ["ListOps", "accuracy in %", "minutes of a run"]
    return [
        head,
        best_baseline(rows, len(head)),
        *([row["pattern"], scores(row), minutes(row)] for row in rows),
    ]


def contexts_table(rows: Sequence[Row]) -> list[list[str]]:
    """Write the bits of a character by the context of training and of reading."""
    lengths = list(dict.fromkeys(length for row in rows for length in row["bits"]))
    readings = [f"bits per character, reading {int(length):,}" for length in lengths]
    table = [["novels", "trained with", *readings, "minutes of a run"]]
    for row in rows:
        bits = [f"{row['bits'][each]:.3f}" if each in row["bits"] else "" for each in lengths]
        table.append([row["pattern"], f"{row['length']:,}", *bits, minutes(row)])
    return table


def reviews_table(rows: Sequence[Row]) -> list[list[str]]:
    """Write the accuracies of film reviews."""
    head = ["film reviews", "read", "accuracy in %", "minutes of a run"]
    lines = ([row["pattern"], f"{row['length']:,}", scores(row), minutes(row)] for row in rows)
    return [head, best_baseline(rows, len(head)), *lines]


def best_baseline(rows: Sequence[Row], num_cells: int) -> list[str]:
    """Write what the best of the models without attention reaches, in the last column but one."""
    name, score = max(rows[0]["baselines"].items(), key=lambda each: each[1])
    return [name.replace("_", " "), *[""] * (num_cells - 3), f"{100 * score:.1f}", ""]


def scores(row: Row) -> str:
    """Write the mean over seeds in percent, and its deviation if there are several."""
    values = [100 * value for value in row["values"]]
    return f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def minutes(row: Row) -> str:
    """Write how long a run took."""
    return f"{row['seconds'] / 60:.1f}"


def scale_of(options: Namespace) -> Scale:
    """Give the sizes of everything, with the lengths and numbers of trainings that the command line names."""
    full = replace(
        FULL,
        lists=replace(FULL.lists, epochs=options.epochs),
        novels=replace(FULL.novels, tokens=options.tokens),
        review_epochs=options.review_epochs,
    )
    scale = TRIAL if options.is_trial else full
    return replace(scale, seeds=options.seeds, review_seeds=options.review_seeds)


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = benchmark_parser(__doc__, RESULTS)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data of all parts")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--seeds", type=int, default=FULL.seeds, help="runs of each classifier of lists")
    parser.add_argument("--epochs", type=int, default=FULL.lists.epochs, help="over the lists")
    parser.add_argument("--review-seeds", type=int, default=FULL.review_seeds, help="runs of each of reviews")
    parser.add_argument("--review-epochs", type=int, default=FULL.review_epochs, help="over the reviews")
    parser.add_argument(
        "--tokens", type=int, default=FULL.novels.tokens, help="of novels that every model reads"
    )
    parser.add_argument("--try", dest="is_trial", action="store_true", help="a few steps of tiny models")
    parser.add_argument("--folder", type=Path, default=Path("runs/patterns"), help="where cells are kept")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
