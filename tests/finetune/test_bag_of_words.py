"""Counting words: the baseline of every task with labels, on the same rows, in any language."""

import ast
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset

from tercet.finetune.tasks import bag_of_words
from tercet.finetune.tasks.bag_of_words import BagOfWords
from tercet.finetune.tasks.task import build_task
from tercet.finetune.tasks.texts import ClassificationRecipe, MultiLabelRecipe
from tercet.training.metrics import labels

GOOD, BAD = ["a fine film", "fine and warm", "a warm film"], ["a dull film", "dull and long", "a long film"]


def test_words_that_decide_are_learned():
    bag = BagOfWords([GOOD + BAD])
    found = bag.one_label(np.array([1, 1, 1, 0, 0, 0]), 3, [["warm and fine", "long and dull"]])
    assert found.argmax(axis=1).tolist() == [1, 0]
    assert found.sum(axis=1) == pytest.approx(1)
    assert found[:, 2].tolist() == [0, 0]


@pytest.mark.parametrize(
    "texts", [["很好的酒店", "好酒店", "差的酒店", "很差酒店"], ["good", "good !", "bad", "bad !"]]
)
def test_texts_without_spaces_are_learned_too(texts):
    bag = BagOfWords([texts * 3])
    found = bag.one_label(
        np.array([1, 1, 0, 0] * 3), 2, [["这家很好", "这家差"] if texts[0] != "good" else ["good", "bad"]]
    )
    assert found.argmax(axis=1).tolist() == [1, 0]


def test_blank_texts_are_no_error():
    found = BagOfWords([[" ", ""] * 3]).one_label(np.array([0, 1] * 3), 2, [[" "]])
    assert found.sum() == pytest.approx(1)


def test_a_single_label_is_what_all_rows_get():
    assert BagOfWords([GOOD]).one_label(np.array([1, 1, 1]), 2, [BAD]).tolist() == [[0, 1]] * 3


def test_long_tables_are_read_in_part(monkeypatch):
    monkeypatch.setattr(bag_of_words, "MOST_ROWS", 10)
    bag = BagOfWords([GOOD * 100])
    assert bag.learned.shape[0] == 10
    assert {0, 299} <= set(bag.chosen.tolist())


def test_tasks_with_labels_predict_from_words():
    rows = Dataset.from_dict({"text": GOOD + BAD, "label": ["good"] * 3 + ["bad"] * 3})
    task = build_task(ClassificationRecipe("classification"), rows)
    assert [each["label"] for each in task.count_words(rows, rows) or ()] == rows["label"][:]
    rows = Dataset.from_dict({"text": GOOD + BAD, "labels": [["good", "film"]] * 3 + [["film"]] * 3})
    task = build_task(MultiLabelRecipe("multi_label"), rows)
    assert [set(each["labels"]) for each in task.count_words(rows, rows) or ()] == [
        *map(set, rows["labels"][:])
    ]


def test_both_texts_of_a_pair_count_on_their_own():
    rows = Dataset.from_dict({"one": ["yes", "no"] * 8, "two": ["no", "yes"] * 8, "label": [1, 0] * 8})
    task = build_task(ClassificationRecipe("classification", texts=("one", "two")), rows)
    assert [each["label"] for each in task.count_words(rows, rows) or ()] == rows["label"][:]


def test_no_other_task_or_metric_loads_its_library_before_it_is_called():
    """All tasks are imported for the names of their metrics, also by reports of pretraining."""
    folders = [Path(bag_of_words.__file__).parent, Path(labels.__file__).parent]
    loading = {
        file.name
        for folder in folders
        for file in folder.glob("*.py")
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(("sklearn", "scipy.stats"))
    }
    assert loading == {"bag_of_words.py"}
