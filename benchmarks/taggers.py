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
from itertools import chain
from pathlib import Path
from typing import Any, cast

from members import cell
from publishing import publish

from tercet.configs.recipe import load_recipe
from tercet.finetune.output import PREDICTIONS
from tercet.finetune.recipe import FineTuningRecipe
from tercet.finetune.run import finetune
from tercet.finetune.task_recipes import TaggingRecipe
from tercet.text.row_files import read_file
from tercet.training.run_folder import RECIPE

VECTORS = {
    "static": ("word-vectors",),
    "FLAIR": ("flair-english",),
    "ELMo": ("elmo-english",),
    "FLAIR and static": ("flair-english", "word-vectors"),
    "ELMo and static": ("elmo-english", "word-vectors"),
}
"""Kinds of word vectors, and the runs that they come from."""

UNSEEN = "unseen"
"""In the scores of a run: see `unseen_share`."""

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
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    return scores | {UNSEEN: unseen_share(folder)}


def unseen_share(folder: Path) -> float:
    """Return the share of right labels among the words of the test rows that no training row has.

    They are those of the best seed.
    """
    recipe = load_recipe(FineTuningRecipe, str(folder / RECIPE))
    task = cast(TaggingRecipe, recipe.task)
    words, tags = task.words, task.tags
    seen = set(chain.from_iterable(read_file(str(recipe.data.train), (words,))[words]))
    rows = read_file(str(recipe.data.test), (words, tags))
    lines = (folder / PREDICTIONS).read_text(encoding="utf-8").splitlines()
    predicted = [json.loads(line)[tags] for line in lines]
    is_right = [
        found == right
        for row in zip(rows[words], rows[tags], predicted, strict=True)
        for word, right, found in zip(*row, strict=True)
        if word not in seen
    ]
    return sum(is_right) / len(is_right)


def render(told: dict[tuple[str, str], dict[str, Any]], options: Namespace) -> str:
    """Write the scores as a table.

    Means of the seeds, their deviation, the best seed's interval, and the share of unseen words that
    the best seed labels right.
    """
    head = [column for task in options.tasks for column in (TASKS[task][1], "unseen words")]
    lines = [f"| word vectors | {' | '.join(head)} |", f"|---|{'--:|' * len(head)}"]
    for vectors in options.vectors:
        scores = [told[task, vectors] for task in options.tasks]
        cells = [text for each in scores for text in (cell(each), f"{100 * each[UNSEEN]:.1f}")]
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
