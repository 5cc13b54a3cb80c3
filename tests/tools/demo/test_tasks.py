"""The rows of the demonstration's tasks: nothing gives an answer away, nothing of a test was read before."""

import json
from collections import Counter

import pytest

from tercet.data.embedded_corpus import Docstring
from tercet.tools.demo.tasks import (
    CHOICES,
    KEPT_BACK,
    NICKNAMES,
    ROWS_PER_PACKAGE,
    STAND_IN,
    continuation_rows,
    package_rows,
    pattern_of_names,
    write_tasks,
)

PACKAGES = ("torch", "numpy", "pandas", "sympy", "networkx", "matplotlib", "transformers", "json", "rich")
SENTENCE = (
    "This {} function number {} of module {} returns what np.dot and {} return for it, and nothing else."
)


def module_of(package: str, number: int) -> tuple[str, list[Docstring]]:
    """Invent a module with two docstrings that name their package."""
    sentences = [SENTENCE.format(package, index, number, package.capitalize()) for index in range(6)]
    docstrings = [
        Docstring("Return a number.", sentences[:3]),
        Docstring(None, sentences[3:]),
        Docstring(
            None, [f"Find the {chr(97 + number % 26) * (1 + number // 26)} of a {package} in the list."]
        ),
    ]
    return f"{package}.m{number}", docstrings


@pytest.fixture(scope="module")
def documents():
    numbers = {"train": range(40), "validation": range(40, 46)}
    return {
        split: [
            module_of(package, number)
            for package in PACKAGES
            for number in own[: len(own) - (package == "rich")]
        ]
        for split, own in numbers.items()
    }


@pytest.fixture(scope="module")
def modules(documents):
    read = documents["train"]
    kept_back = {module for module, _ in read[::KEPT_BACK]}
    return {
        "train": [document for document in read if document[0] not in kept_back],
        "validation": read[::KEPT_BACK],
        "test": documents["validation"],
    }


def test_no_row_names_a_package(modules):
    rows = package_rows(modules)
    names = {row["label"] for row in rows["train"]} - {"standard library"}
    for split in ROWS_PER_PACKAGE:
        for row in rows[split]:
            words = row["text"].lower().replace(".", " ").split()
            assert not any(name in word for name in names for word in words)
            assert not set(words) & set(NICKNAMES)
            assert STAND_IN in words


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("A torch.Tensor, as in PyTorch.", "A package, as in package."),
        ("NumPy's arrays (numpy.ndarray).", "package's arrays (package)."),
        ("An NP-hard problem, unlike np.sum.", "An NP-hard problem, unlike package."),
        ("The input is cut.", "The input is cut."),
    ],
)
def test_words_with_a_name_are_replaced(text, left):
    assert pattern_of_names(["torch", "numpy"]).sub(STAND_IN, text) == left


def test_splits_share_no_module_and_test_rows_were_not_read(documents, tmp_path):
    write_tasks(tmp_path / "tasks", documents)
    found = {
        split: {row["module"] for row in rows_of(tmp_path / "tasks" / f"packages-{split}.jsonl")}
        for split in ROWS_PER_PACKAGE
    }
    read = {module for module, _ in documents["train"]}
    assert all(found.values())
    assert found["train"] | found["validation"] <= read
    assert not found["train"] & found["validation"]
    assert not found["test"] & read


def test_labels_are_the_largest_packages_and_balanced(modules):
    rows = package_rows(modules)
    labels = [row["label"] for row in rows["test"]]
    assert set(labels) == {*PACKAGES, "standard library"} - {"json", "rich"}
    assert {labels.count(label) for label in set(labels)} == {36}
    assert max(len(found) for found in rows.values()) <= 8 * ROWS_PER_PACKAGE["train"]


def test_every_continuation_is_right_once_and_wrong_three_times():
    paragraphs = [" ".join(f"{letter}{number}" for number in range(50)) for letter in "abcdefghijkl"]
    modules = [(f"json.{text[0]}", [Docstring(None, [text])]) for text in paragraphs]
    alone = ("torch.alone", [Docstring(None, paragraphs[:1])])
    rows = continuation_rows([*modules, alone])
    assert [row["text"].split()[-1][1:] for row in rows] == ["24"] * 12
    right = [row["choices"][row["target"]] for row in rows]
    assert all(own.split()[0] == f"{row['text'][0]}25" for own, row in zip(right, rows, strict=True))
    wrong = Counter(text for row in rows for text in row["choices"]) - Counter(right)
    assert set(wrong.values()) == {CHOICES - 1}
    assert Counter(row["target"] for row in rows) == dict.fromkeys(range(CHOICES), 3)


def rows_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]
