"""What the models learn, or are measured on, besides running text: rows from the embedded corpus.

packages         which of eight packages does a paragraph document?    text -> label
continuations    which of four texts continues a paragraph?            text, choices -> target

Rows to learn from, and rows to choose by, come from different modules of those that pretraining reads; test
rows come from the modules that it does not. Where there are more than enough, rows stand evenly spaced.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...data.embedded_corpus import Document, package_of

Row = dict[str, Any]
"""What is read, what is right, and the module that both are from."""
Modules = Mapping[str, Sequence[Document]]
"""Modules by split."""

KEPT_BACK = 10
"""Of so many modules that pretraining has read, one is for validation."""

NUM_PACKAGES = 8
ROWS_PER_PACKAGE = {"train": 250, "validation": 50, "test": 75}
FEWEST_WORDS = 15
"""Shorter paragraphs say too little of where they are from."""
NICKNAMES = ("np", "pd", "nx", "plt", "mpl")
"""Names by which some packages are known, besides their own."""
STAND_IN = "package"
"""What stands in a paragraph for the name of a package."""

CONTINUATIONS = 500
CHOICES = 4
CUT_WORDS = 30
"""Words of a paragraph that is cut, at least."""
READ_WORDS = 15
CONTINUED_WORDS = 12
"""Words before the cut and behind it: so few that words in common do not give the answer away."""


def write_tasks(folder: Path, documents: Modules) -> None:
    """Write the rows of all tasks into a folder: `packages-train.jsonl`, ..., `continuations-test.jsonl`.

    Args:
        folder: To be made.
        documents: The modules that pretraining has learned from (`train`), and others (`validation`).
    """
    folder.mkdir()
    modules = {
        "train": [each for number, each in enumerate(documents["train"]) if number % KEPT_BACK],
        "validation": documents["train"][::KEPT_BACK],
        "test": documents["validation"],
    }
    tasks = {"packages": package_rows(modules), "continuations": {"test": continuation_rows(modules["test"])}}
    for task, rows in tasks.items():
        for split, own in rows.items():
            lines = (f"{json.dumps(row, ensure_ascii=False)}\n" for row in own)
            (folder / f"{task}-{split}.jsonl").write_text("".join(lines), encoding="utf-8")


def package_rows(modules: Modules) -> dict[str, list[Row]]:
    """Make the rows of the first task, as many of each package as there are: of the largest packages."""
    paragraphs = {split: by_package(documents) for split, documents in modules.items()}
    sizes = Counter({package: len(found) for package, found in paragraphs["train"].items()})
    packages = [package for package, _ in sizes.most_common(NUM_PACKAGES)]
    names = pattern_of_names(packages)
    return {
        split: [
            {"text": names.sub(STAND_IN, text), "label": package, "module": module}
            for package in packages
            for module, text in evenly_spaced(found[package], ROWS_PER_PACKAGE[split])
        ]
        for split, found in paragraphs.items()
    }


def by_package(documents: Sequence[Document]) -> Mapping[str, list[tuple[str, str]]]:
    """Sort paragraphs that are long enough by their packages, each with its module."""
    found = defaultdict(list)
    for module, docstrings in documents:
        found[package_of(module)] += [
            (module, paragraph)
            for docstring in docstrings
            for paragraph in docstring.paragraphs
            if len(paragraph.split()) >= FEWEST_WORDS
        ]
    return found


def evenly_spaced(things: Sequence, count: int) -> list:
    """Pick `count` things at equal distances, the middle of each stretch; all of them if they are fewer."""
    count = min(count, len(things))
    return [things[(2 * number + 1) * len(things) // (2 * count)] for number in range(count)]


def pattern_of_names(packages: Sequence[str]) -> re.Pattern[str]:
    """Describe the words that would give a package away: those that hold a name, and dotted paths with one.

    >>> from tercet.tools.demo.tasks import pattern_of_names
    >>> pattern_of_names(["torch", "numpy"]).sub("package", "PyTorch's torch.nn.Linear, not NumPy or np.dot.")
    "package's package, not package or package."
    """
    names = "|".join(map(re.escape, packages))
    return re.compile(rf"[\w.~]*(?:(?i:{names})|\b(?:{'|'.join(NICKNAMES)})\b)\w*(?:\.\w+)*")


def continuation_rows(documents: Sequence[Document]) -> list[Row]:
    """Make the rows of the second task: how a paragraph goes on, among three others of the same package.

    The right answer stands in turns in each place. Before rows are chosen, each text is the right answer once
    and a wrong one three times. Packages with fewer than four paragraphs have none.
    """
    rows = [row for own in by_package(documents).values() for row in rows_of_package(own)]
    return evenly_spaced(rows, CONTINUATIONS)


def rows_of_package(paragraphs: Sequence[tuple[str, str]]) -> Iterator[Row]:
    """Cut paragraphs in the middle, and put how each goes on among three others, a quarter apart."""
    words = [(module, text.split()) for module, text in paragraphs if len(text.split()) >= CUT_WORDS]
    halves = [(module, own[: len(own) // 2], own[len(own) // 2 :]) for module, own in words]
    for number, (module, read, continued) in enumerate(halves if len(halves) >= CHOICES else []):
        places = [(number + step * len(halves) // CHOICES) % len(halves) for step in range(1, CHOICES)]
        target, choices = number % CHOICES, [halves[place][2] for place in places]
        choices.insert(target, continued)
        texts = [" ".join(choice[:CONTINUED_WORDS]) for choice in choices]
        yield {"text": " ".join(read[-READ_WORDS:]), "choices": texts, "target": target, "module": module}
