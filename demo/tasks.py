"""What the models learn, or are measured on, besides running text: rows from the embedded corpus.

packages         which of eight packages does a paragraph document?      text -> label
telegrams        what was a sentence before its small words were cut?    telegram -> sentence
continuations    which of four texts continues a paragraph?              text, choices -> target

Rows to learn from, and rows to choose by, come from different modules of those that pretraining reads; test
rows come from the modules that it does not. Where there are more than enough, rows stand evenly spaced.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..text.documentation import Document, package_of
from ..text.sentences import split_sentences

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

TELEGRAMS = {"train": 60_000, "validation": 300, "test": 300}
SENTENCE = re.compile(r"[A-Z][A-Za-z ,;:'()-]*\.")
"""A sentence of words alone."""
WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
SENTENCE_WORDS = range(6, 21)
"""Words of a sentence."""
FEWEST_CUT = 2
"""Small words that a telegram lacks, at least."""
SMALL_WORDS = frozenset({
    "a", "an", "the", "of", "to", "in", "on", "at", "by", "for", "from", "with", "into", "as", "and", "or",
    "is", "are", "was", "were", "be", "been", "being", "it", "its", "this", "that", "these", "those",
    "which", "has", "have", "do", "does",
})  # fmt: skip
"""What a telegram leaves out."""

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
    modules = divide(documents["train"], documents["validation"])
    packages = package_rows(modules)
    tasks = {
        "packages": packages,
        "telegrams": telegram_rows(modules),
        "continuations": {"test": continuation_rows(modules["test"])},
    }
    for task, rows in tasks.items():
        for split, own in rows.items():
            lines = (f"{json.dumps(row, ensure_ascii=False)}\n" for row in own)
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


def evenly_spaced(things: Sequence, count: int) -> list:
    """Pick `count` things at equal distances, the middle of each stretch; all of them if they are fewer."""
    count = min(count, len(things))
    return [things[(2 * number + 1) * len(things) // (2 * count)] for number in range(count)]


def pattern_of_names(packages: Sequence[str]) -> re.Pattern[str]:
    """Describe the words that would give a package away: those that hold a name, and dotted paths with one.

    >>> from tercet.demo.tasks import pattern_of_names
    >>> pattern_of_names(["torch", "numpy"]).sub("package", "PyTorch's torch.nn.Linear, not NumPy or np.dot.")
    "package's package, not package or package."
    """
    names = "|".join(map(re.escape, packages))
    return re.compile(rf"[\w.~]*(?:(?i:{names})|\b(?:{'|'.join(NICKNAMES)})\b)\w*(?:\.\w+)*")


def telegram_rows(modules: Modules) -> dict[str, list[Row]]:
    """Make the rows of the second task; no sentence stands in two of them."""
    seen: set[str] = set()
    found = {split: list(telegrams(modules[split], seen)) for split in ("test", "validation", "train")}
    return {split: evenly_spaced(found[split], TELEGRAMS[split]) for split in SPLITS}


def telegrams(documents: Sequence[Document], seen: set[str]) -> Iterator[Row]:
    """Find sentences of words alone that lack something without their small words, and are not in `seen`."""
    for module, docstrings in documents:
        for docstring in docstrings:
            for sentence in (part.strip() for text in docstring.paragraphs for part in split_sentences(text)):
                telegram = cut_small_words(sentence)
                cut = len(sentence.split()) - len(telegram.split())
                is_suited = SENTENCE.fullmatch(sentence) and len(sentence.split()) in SENTENCE_WORDS
                if is_suited and telegram and cut >= FEWEST_CUT and sentence not in seen:
                    seen.add(sentence)
                    yield {"telegram": telegram, "sentence": sentence, "module": module}


def cut_small_words(sentence: str) -> str:
    """Leave a sentence's other words, in lower case and without punctuation.

    >>> from tercet.demo.tasks import cut_small_words
    >>> cut_small_words("Return the number of elements in the list.")
    'return number elements list'
    """
    words = (word.lower() for word in WORD.findall(sentence))
    return " ".join(word for word in words if word not in SMALL_WORDS)


def continuation_rows(documents: Sequence[Document]) -> list[Row]:
    """Make the rows of the third task: how a paragraph goes on, among three others of the same package.

    The right answer stands in turns in each place. Before rows are chosen, each text is the right answer once
    and a wrong one three times. Packages with fewer than four paragraphs have none.
    """
    halves = defaultdict(list)
    for module, docstrings in documents:
        halves[package_of(module)] += [
            (module, *cut_in_the_middle(paragraph))
            for docstring in docstrings
            for paragraph in docstring.paragraphs
            if len(paragraph.split()) >= CUT_WORDS
        ]
    rows = [row for own in halves.values() if len(own) >= CHOICES for row in rows_of_package(own)]
    return evenly_spaced(rows, CONTINUATIONS)


def rows_of_package(halves: Sequence[tuple[str, str, str]]) -> Iterator[Row]:
    """Put the second half of each paragraph among those of three others, each a quarter further on."""
    for number, (module, read, continued) in enumerate(halves):
        places = [(number + step * len(halves) // CHOICES) % len(halves) for step in range(1, CHOICES)]
        choices, target = [halves[place][2] for place in places], number % CHOICES
        choices.insert(target, continued)
        yield {"text": read, "choices": choices, "target": target, "module": module}


def cut_in_the_middle(paragraph: str) -> tuple[str, str]:
    """Return the words before the middle of a paragraph and those behind it, as many as are read."""
    words = paragraph.split()
    middle = len(words) // 2
    before, behind = words[max(0, middle - READ_WORDS) : middle], words[middle : middle + CONTINUED_WORDS]
    return " ".join(before), " ".join(behind)
