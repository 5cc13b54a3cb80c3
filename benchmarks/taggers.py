"""Teach taggers names and parts of speech, on static, character-based and contextual word vectors.

    python benchmarks/taggers.py --runs runs --page docs/taggers.md
    python benchmarks/taggers.py --runs runs --tasks conll2003 --vectors static

--runs holds the models whose vectors are read: what the recipes flair-english and elmo-english have left, and
static vectors as `word-vectors`, by examples/train_word_vectors.py. Every run is one of `tercet finetune`;
those that are finished are kept in --folder and not repeated, interrupted ones go on.
"""

import json
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from members import cell
from publishing import publish

from tercet.configs.recipe import load_recipe
from tercet.finetune.recipe import FineTuningRecipe
from tercet.finetune.run import finetune

VECTORS = {
    "static": ("word-vectors",),
    "FLAIR": ("flair-english",),
    "ELMo": ("elmo-english",),
    "FLAIR and static": ("flair-english", "word-vectors"),
    "ELMo and static": ("elmo-english", "word-vectors"),
}
"""Kinds of word vectors, and the runs that they come from."""

TASKS = {
    "conll2003": ("conll2003-tagger", "CoNLL-2003, F1 of names"),
    "ud_english": ("ud-english-tagger", "UD English EWT, accuracy of parts of speech"),
}
"""Tasks: the recipe and the heading of each."""


def main(arguments: list[str]) -> int:
    """Carry out all runs, print the table, and write it into a page."""
    options = parse(arguments)
    told = {
        (task, vectors): run(task, vectors, options) for task in options.tasks for vectors in options.vectors
    }
    publish(render(told, options), options.page, __file__)
    return 0


def run(task: str, vectors: str, options: Namespace) -> dict[str, Any]:
    """Carry out one run, unless it is finished; its scores."""
    folder = options.folder / f"{task}-{vectors.replace(' ', '-').lower()}"
    if not (folder / "scores.json").exists():
        first, *beside = (str(options.runs / name / "model") for name in VECTORS[vectors])
        recipe, _ = TASKS[task]
        overrides = [f"model.path={first}", f"model.tagger.beside={json.dumps(beside)}", f"output={folder}"]
        finetune(load_recipe(FineTuningRecipe, recipe, [*overrides, *options.overrides]), resume=True)
    return json.loads((folder / "scores.json").read_text(encoding="utf-8"))


def render(told: dict[tuple[str, str], dict[str, Any]], options: Namespace) -> str:
    """Write the scores as a table: means of the seeds, their deviation, and the best seed's interval."""
    lines = [
        f"| word vectors | {' | '.join(TASKS[task][1] for task in options.tasks)} |",
        f"|---|{'--:|' * len(options.tasks)}",
    ]
    for vectors in options.vectors:
        cells = [cell(told[task, vectors]) for task in options.tasks]
        lines.append(f"| {vectors} | {' | '.join(cells)} |")
    versions = ", ".join(f"{name} {version(name)}" for name in ("tercet", "torch", "transformers"))
    return "\n".join([f"With {versions}.", "", *lines])


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the models of vectors are")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument("--vectors", nargs="+", choices=VECTORS, default=list(VECTORS), metavar="VECTORS")
    parser.add_argument("--overrides", nargs="+", default=[], metavar="KEY=VALUE", help="of every recipe")
    parser.add_argument("--folder", type=Path, default=Path("runs/taggers"), help="where runs are kept")
    parser.add_argument("--page", type=Path, help="page that has a place for the table")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
