"""Teach our three pretrained members the same tasks, each beside the same architecture from scratch.

    python benchmarks/members.py --runs runs --tasks cola mrpc stsb conll2003 --page docs/results.md

--runs holds what the recipes encoder-english, decoder-english and seq2seq-english have left. Every run is one
of `tercet finetune`; those that are finished are kept in --folder and not repeated, interrupted ones go on.
"""

import json
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from publishing import publish
from samples import row_sample

from tercet.configs.recipe import load_recipe
from tercet.finetune.recipe import FineTuningRecipe
from tercet.finetune.run import finetune
from tercet.storage.scores import METRICS

MEMBERS = ("encoder", "decoder", "seq2seq")
TASKS = ("cola", "mrpc", "stsb", "sst2", "trec", "rte", "conll2003")

HEAD = """\
| task, score | baseline | {members} |
|---|--:|{rules}|"""


def main(arguments: list[str]) -> int:
    """Carry out all runs, print the table, and write it into a page."""
    options = parse(arguments)
    told = {
        (task, member, start): run(task, member, start, options)
        for task in options.tasks
        for start in options.starts
        for member in options.members
    }
    text = render(told, options)
    publish(text, options.page, __file__)
    return 0


def run(task: str, member: str, start: str, options: Namespace) -> dict[str, Any]:
    """Carry out one run, unless it is finished; its scores."""
    folder = options.folder / f"{task}-{member}-{start}"
    if not (folder / "scores.json").exists():
        overrides = [
            *fewer_rows(task, options),
            f"model.path={options.runs / f'{member}-english' / 'model'}",
            f"model.from_scratch={str(start == 'scratch').lower()}",
            f"output={folder}",
            *options.overrides,
        ]
        finetune(load_recipe(FineTuningRecipe, task, overrides), resume=True)
    return json.loads((folder / "scores.json").read_text(encoding="utf-8"))


def fewer_rows(task: str, options: Namespace) -> list[str]:
    """Write some rows of a task's training file into one of its own; what a recipe says of it."""
    recipe = load_recipe(FineTuningRecipe, task)
    if options.rows is None:
        return []
    file = options.folder / f"{task}-{options.rows}.jsonl"
    return [f"data.train={row_sample(recipe.data.train, recipe.task.columns, options.rows, file)}"]


def render(told: dict[tuple[str, str, str], dict[str, Any]], options: Namespace) -> str:
    """Write the scores as a table: means of the seeds, their deviation, and the best seed's interval."""
    columns = [(member, start) for member in options.members for start in options.starts]
    lines = [HEAD.format(members=" | ".join(map(" ".join, columns)), rules="--:|" * len(columns))[:-1]]
    for task in options.tasks:
        first = told[task, *columns[0]]
        criterion = first["criterion"]
        guess = next(iter(first["baselines"].values())).get(criterion, 0.0)
        cells = [cell(told[task, *column]) for column in columns]
        lines.append(f"| {task}, {METRICS[criterion]} | {guess:.3g} | {' | '.join(cells)} |")
    versions = ", ".join(f"{name} {version(name)}" for name in ("tercet", "torch", "transformers"))
    return "\n".join([f"With {versions}.", "", *lines])


def cell(scores: dict[str, Any]) -> str:
    """Write the score of one run: mean ± deviation of the seeds, and in brackets the best seed's interval."""
    criterion, split = scores["criterion"], scores["split"]
    mean, spread = (scores[name][split][criterion] for name in ("mean", "standard_deviation"))
    low, high = scores["interval"]
    return f"{100 * mean:.1f} ± {100 * spread:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the pretrained members are")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument("--members", nargs="+", choices=MEMBERS, default=list(MEMBERS), metavar="MEMBER")
    parser.add_argument("--starts", nargs="+", default=["pretrained", "scratch"], metavar="START")
    parser.add_argument("--rows", type=int, help="to learn from, drawn at random; all if left out")
    parser.add_argument("--overrides", nargs="+", default=[], metavar="KEY=VALUE", help="of every recipe")
    parser.add_argument("--folder", type=Path, default=Path("runs/members"), help="where runs are kept")
    parser.add_argument("--page", type=Path, help="page that has a place for the table")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
