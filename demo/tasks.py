"""What the models are fine-tuned on and prompted with after pretraining: rows from the embedded corpus.

packages     which of eight packages does a paragraph document?     text -> label
summaries    what is a docstring's first line, given the others?    document -> summary
questions    the first task in ten words, for prompting            text, choices -> label

Rows to learn from, and rows to choose by, come from different modules of those that pretraining has read;
test rows come from the modules that it has not. Where there are more than enough, rows stand evenly spaced.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..text.documentation import Docstring, Document, package_of
from .samples import evenly_spaced

Row = dict[str, Any]
"""What is read, what is right, and the module that both are from."""

Modules = Mapping[str, Sequence[Document]]
"""Modules by split."""

SPLITS = ("train", "validation", "test")
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

SUMMARIES = {"train": 2000, "validation": 100, "test": 200}
LONGEST_SUMMARY = 20
SHORTEST_REST = 20
LONGEST_REST = 70
"""In words: what a model of 128 positions can read."""

QUESTIONS = {"train": 100, "validation": 0, "test": 15}
"""Of each package."""
QUESTION = 10
"""Words of a paragraph that a question shows: five of them fit into 128 positions."""


def write_tasks(folder: Path, documents: Modules) -> None:
    """Write the rows of all tasks into a folder: `packages-train.jsonl`, ..., `questions-test.jsonl`.

    Args:
        folder: To be made.
        documents: The modules that pretraining has learned from (`train`), and others (`validation`).
    """
    folder.mkdir()
    modules = divide(documents["train"], documents["validation"])
    packages = package_rows(modules)
    tasks = {
        "packages": packages,
        "summaries": summary_rows(modules),
        "questions": {split: question_rows(rows, QUESTIONS[split]) for split, rows in packages.items()},
    }
    for task, rows in tasks.items():
        for split in SPLITS:
            lines = (f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows[split])
            (folder / f"{task}-{split}.jsonl").write_text("".join(lines), encoding="utf-8")


def divide(read: Sequence[Document], unread: Sequence[Document]) -> Modules:
    """Divide modules among the splits of a task, those that pretraining has not read for its test."""
    return {
        "train": [document for number, document in enumerate(read) if number % KEPT_BACK],
        "validation": read[::KEPT_BACK],
        "test": unread,
    }


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


def pattern_of_names(packages: Sequence[str]) -> re.Pattern[str]:
    """Describe the words that would give a package away: those that hold a name, and dotted paths with one.

    >>> from tercet.demo.tasks import pattern_of_names
    >>> pattern_of_names(["torch", "numpy"]).sub("package", "PyTorch's torch.nn.Linear, not NumPy or np.dot.")
    "package's package, not package or package."
    """
    names = "|".join(map(re.escape, packages))
    return re.compile(rf"[\w.~]*(?:(?i:{names})|\b(?:{'|'.join(NICKNAMES)})\b)\w*(?:\.\w+)*")


def question_rows(rows: Sequence[Row], number: int) -> list[Row]:
    """Shorten rows of the first task, so many of each package, and name the packages beside each."""
    packages = sorted({row["label"] for row in rows})
    return [
        {"text": " ".join(row["text"].split()[:QUESTION]), "label": package, "choices": packages}
        for package in packages
        for row in evenly_spaced([row for row in rows if row["label"] == package], number)
    ]


def summary_rows(modules: Modules) -> dict[str, list[Row]]:
    """Make the rows of the second task."""
    return {
        split: evenly_spaced(list(summaries(documents)), SUMMARIES[split])
        for split, documents in modules.items()
    }


def summaries(documents: Sequence[Document]) -> Iterator[Row]:
    """Find docstrings with a first line and enough besides."""
    for module, docstrings in documents:
        for docstring in docstrings:
            rest = rest_of(docstring)
            is_long_enough = len(rest.split()) >= SHORTEST_REST
            if docstring.summary and is_long_enough and len(docstring.summary.split()) <= LONGEST_SUMMARY:
                yield {"document": rest, "summary": docstring.summary, "module": module}


def rest_of(docstring: Docstring) -> str:
    """Join what follows a first line: whole paragraphs, as many as can be read."""
    kept, num_words = [], 0
    for paragraph in docstring.details:
        num_words += len(paragraph.split())
        if num_words > LONGEST_REST:
            break
        kept.append(paragraph)
    return " ".join(kept)
