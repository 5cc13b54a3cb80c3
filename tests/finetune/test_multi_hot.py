"""A set of labels is the same as a list of labels and as a 0 or 1 for each; one label is a set, too."""

import json

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, List

from tercet.data.files.bad_rows import RowError
from tercet.finetune.prediction import Predictor
from tercet.finetune.tasks.task import build_task
from tercet.finetune.tasks.texts import MultiLabelRecipe
from tercet.modeling.saved.checkpoint import Checkpoint

from ..reported import finetune
from .conftest import write_rows

NAMES = ("a", "b", "c")
HOT = [[0, 1, 0], [1, 1, 0], [0, 0, 0], [0, 0, 1]]
LISTS = [[name for name, has in zip(NAMES, row, strict=True) if has] for row in HOT]


def rows_of(labels, feature=None):
    features = None if feature is None else Features({"labels": feature})
    return Dataset.from_dict({"labels": labels}, features=features)


def build(labels, *names, feature=None):
    recipe, rows = MultiLabelRecipe("multi_label", label_names=names), rows_of(labels, feature)
    recipe.build().require_usable(rows.add_column("text", ["a text"] * len(rows)))
    return build_task(recipe, rows)


@pytest.mark.parametrize("kind", [int, float, bool, str])
def test_zeros_and_ones_for_all_labels_are_the_lists_of_those_that_hold(kind):
    hot = [[kind(value) for value in row] for row in HOT]
    with pytest.warns(UserWarning, match="column 'labels' has a 0 or 1 for each of 3 labels$"):
        task = build(hot, *NAMES)
    listed = build(LISTS)
    assert task.labels.names == listed.labels.names == list(NAMES)
    assert np.array_equal(task.references(rows_of(hot)), listed.references(rows_of(LISTS)))
    with pytest.warns(UserWarning, match="called by their numbers: task.label_names names them"):
        assert build(hot).labels.names == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("labels", "names", "feature", "sets"),
    [
        ([[0, 1], [1], []], (), None, [[1, 1], [0, 1], [0, 0]]),
        ([[0], [1]], (), None, [[1, 0], [0, 1]]),
        ([[0], [1]], ("a",), None, [[0], [1]]),
        ([[0, 1], [1, 2]], (), None, [[1, 1, 0], [0, 1, 1]]),
        ([[0, 1], [1, 0]], (), None, [[0, 1], [1, 0]]),
        ([[0, 2], [1, 0]], NAMES, None, [[1, 0, 1], [1, 1, 0]]),
        ([[0, 1], [2, 1], [1, 0]], (), List(ClassLabel(names=NAMES)), [[1, 1, 0], [0, 1, 1], [1, 1, 0]]),
    ],
)
@pytest.mark.filterwarnings("ignore:column")
def test_only_lists_of_one_length_of_zeros_and_ones_are_no_lists_of_labels(labels, names, feature, sets):
    assert build(labels, *names, feature=feature).references(rows_of(labels)).tolist() == sets


@pytest.mark.parametrize(
    ("labels", "names", "complaint"),
    [
        ([[0, 1, 1], [1, 0]], (),
         r"row 1 has \[0, 1, 1\] .* names one twice: name each once, or give all rows"),
        ([[0, 1, 0, -1], [1, 0, 0, 1]], (), "row 1 .* names one twice"),
        ([[0, 1], [1, 0]], NAMES,
         "lists of 2 zeros and ones, one for each label, but task.label_names has 3"),
        ([["a"], ["a"]], (),
         r"all rows have the same labels \(a\): there is nothing to learn; add rows with others"),
        ([[], []], ("a",), "there are no labels: name a column that has some"),
        ([[0, 1], [0, 1]], NAMES[:2], r"all rows have the same labels \(b\)"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:column")
def test_what_may_be_either_or_teaches_nothing_is_refused(labels, names, complaint):
    with pytest.raises(ValueError, match=complaint):
        build(labels, *names)


@pytest.mark.filterwarnings("ignore:column")
def test_other_rows_are_read_as_those_that_were_learned_from():
    task = build(HOT, *NAMES)
    assert task.references(rows_of([[1, 0, 1]])).tolist() == [[1, 0, 1]]
    for other in (["a"], [0, 1], [0, 1, 2]):
        with pytest.raises(RowError, match="where training rows have 3 zeros and ones, one for each label"):
            task.references(rows_of([other]))
    assert build([[0, 1], [1], []]).references(rows_of([[0, 1], [1, 0]])).tolist() == [[1, 1], [1, 1]]


@pytest.mark.slow
def test_one_label_that_rows_have_or_not_is_learned(recipe_of, tmp_path):
    rows = [
        {"text": f"the {'cat' if number % 2 else 'dog'} sat", "labels": ["cat"] * (number % 2)}
        for number in range(60)
    ]
    files = {name: str(write_rows(tmp_path / f"{name}-one.jsonl", rows)) for name in ("train", "validation")}
    recipe = recipe_of("multi_label", data=files, training={"epochs": 6, "learning_rate": 1e-2})
    model = finetune(recipe)
    scores = json.loads((recipe.folder / "scores.json").read_text())
    assert scores["mean"]["validation"]["f1_micro"] == scores["baselines"]["bag of words"]["f1_micro"] == 1.0
    assert scores["baselines"]["majority class"]["f1_micro"] in (0.0, 2 / 3)
    predictor = Predictor(Checkpoint.open(str(model)))
    found = predictor.predict(Dataset.from_dict({"text": ["the cat sat", "the dog sat"]}))
    assert [each["labels"] for each in found] == [["cat"], []]
    assert "cat" in (recipe.folder / "report.md").read_text()
