"""Values of the wrong kind are named with their row, in every field of every kind of task."""

import json
import math

import pytest
from datasets import Dataset

from tercet.configs.recipe import parse_recipe
from tercet.data.files.columns import as_rows
from tercet.data.files.rows import stream_rows
from tercet.finetune.encoding import TextEncoder
from tercet.finetune.prediction import predicted
from tercet.finetune.splits import encode_splits, find_task
from tercet.finetune.tasks.recipes import TASKS
from tercet.plain_parts import plain_task

from .conftest import ROWS, found_task, splits_of, write_rows

ODD = [None, 3, math.nan, math.inf, True, "AB", "", [], [None], [1], [["a"]], [["a"], 1], {"a": 1}, 10**30]
"""Values that are the wrong ones somewhere."""

RIGHT = {
    ("text", "AB"), ("query", "AB"), ("positive", "AB"), ("question", "AB"), ("label", "AB"),
    ("score", 3), ("labels", "[]"),
}  # fmt: skip
"""Columns where one of them is no mistake."""


@pytest.mark.parametrize(
    "data",
    [
        *({"kind": kind} for kind in TASKS),
        {"kind": "classification", "texts": ["a", "b"], "label": "c"},
        {"kind": "ranking", "negative": "worse"},
        {"kind": "chat", "prompt": "asked"},
    ],
    ids=str,
)
def test_the_schema_knows_the_columns_that_the_recipe_names(data):
    recipe, plain = parse_recipe(TASKS[data["kind"]], data), plain_task(data)
    assert (recipe.input_columns, recipe.label_columns) == (plain.input_columns, plain.label_columns)
    assert recipe.keys == plain.keys


@pytest.fixture
def recipe_with(recipe_of, tmp_path):
    """Make a recipe of a kind, with one value in row 6 of a split replaced, or in all rows."""

    def make(kind, column, value, split="train", everywhere=False):
        recipe = recipe_of(kind)
        rows = ROWS[kind](12, 0)
        for row in rows if everywhere else rows[5:6]:
            row[column] = value
        write_rows(tmp_path / f"{split}.jsonl", rows)
        return recipe

    return make


def read(recipe, tokenizer):
    rows = splits_of(recipe)
    encoder = TextEncoder(tokenizer, 64, has_token_types=True)
    encode_splits(rows, find_task(recipe.task.build(), rows), encoder)


@pytest.mark.parametrize("kind", ROWS)
def test_a_value_of_the_wrong_kind_is_told_with_its_row(kind, recipe_with, families):
    for column in recipe_with(kind, "text", "x").task.columns:
        for value in ODD:
            if (column, value if isinstance(value, (str, int)) else str(value)) in RIGHT or value is True:
                continue
            with pytest.raises(ValueError, match="row 6 ") as caught:
                read(recipe_with(kind, column, value), families["wordpiece"])
            assert "\n" not in str(caught.value), (column, value)
    with pytest.raises(ValueError, match="row 6 "):
        read(recipe_with(kind, recipe_with(kind, "text", "x").task.columns[-1], {"a": 1}, "validation"),
             families["wordpiece"])  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        ("multi_label", "labels", "AB"),
        ("multi_label", "labels", 3),
        ("multi_label", "labels", True),
        ("tagging", "tags", "AB"),
        ("tagging", "tags", 3),
        ("tagging", "tokens", "AB"),
    ],
)
def test_a_text_or_a_number_is_no_list_of_labels(kind, column, value, recipe_with, families):
    """Not even where all rows are alike: the letters of a text are no labels."""
    complaint = rf"line 1: row 1 has {value!r} in column '{column}', which is no list of .*: write a list"
    with pytest.raises(ValueError, match=complaint):
        read(recipe_with(kind, column, value, everywhere=True), families["wordpiece"])


def test_a_list_is_no_label(recipe_with, families):
    with pytest.raises(ValueError, match=r"row 1 has \['a'\] in column 'label', which is no label"):
        read(recipe_with("classification", "label", ["a"], everywhere=True), families["wordpiece"])


@pytest.mark.parametrize(
    ("kind", "column", "value", "complaint"),
    [
        ("regression", "score", True, "row 1 has True in column 'score', which is no number"),
        ("multiple_choice", "gold", math.inf, "row 1 has inf in column 'gold', but choices 0 to 1"),
        ("multiple_choice", "gold", math.nan, "row 1 has nan in column 'gold', but choices 0 to 1"),
        ("classification", "text", math.nan, r"row 1 has no text in column 'text' \(nan\)"),
        ("ranking", "positive", math.inf, r"row 1 has no text in column 'positive' \(inf\)"),
        ("question_answering", "answers", {"text": "a", "answer_start": [0]}, "row 1 has .*, neither"),
        ("question_answering", "answers", {"text": ["a"], "answer_start": [0.0]}, "row 1 has .*, neither"),
    ],
)
def test_what_looks_like_a_value_is_none(kind, column, value, complaint, recipe_with, families):
    with pytest.raises(ValueError, match=complaint):
        read(recipe_with(kind, column, value, everywhere=True), families["wordpiece"])


class Reader:
    """Reads the rows that are to be predicted, and predicts nothing."""

    def __init__(self, task, tokenizer):
        self.task, self.columns = task, task.recipe.input_columns
        self.encoder = TextEncoder(tokenizer, 64, has_token_types=True)

    def predict(self, rows):
        self.task.examples(rows, self.encoder, labelled=False)
        return [{}] * len(rows)


@pytest.mark.parametrize("kind", ROWS)
def test_rows_to_be_predicted_are_told_alike(kind, recipe_of, tmp_path, families):
    task = found_task(recipe_of(kind))
    reader, columns = Reader(task, families["wordpiece"]), task.recipe.input_columns
    for column in columns:
        for value in ODD:
            if value == "AB" and column not in ("tokens", "choices"):
                continue
            rows = ROWS[kind](12, 0)
            rows[5][column] = value
            file = write_rows(tmp_path / "rows.jsonl", rows)
            with pytest.raises(ValueError, match="row 6 "):
                list(predicted(reader, stream_rows(str(file), columns)))


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (
            ["a", None, 3, "b"],
            "row 3 has 3 in column 'x', where the rows before it have texts: give all rows",
        ),
        ([None, 3, 4, "b"], "row 4 has 'b' in column 'x', where the rows before it have numbers"),
        ([["a"], ["b"], "c"], "row 3 has 'c' in column 'x', where the rows before it have lists"),
        ([["a"], ["b"], ["c", 1]], r"row 3 has \['c', 1\] in column 'x', which does not go together"),
        ([[1, "c"]], r"row 1 has \[1, 'c'\] in column 'x', which does not go together"),
        ([1, 2, 10**30], "row 3 has 1000.* in column 'x', which does not go together"),
        ([1.5, 2, True], "row 3 has True in column 'x', where others have numbers"),
        ([True, 2], "row 2 has 2 in column 'x', where the rows before it have truth values"),
    ],
)
def test_the_first_value_that_does_not_go_with_the_others_is_named(values, complaint):
    with pytest.raises(ValueError, match=complaint) as caught:
        as_rows({"x": values})
    assert "\n" not in str(caught.value)


def test_values_of_one_kind_are_kept():
    columns = {"x": ["a", None], "y": [1, 2.5], "z": [[], ["a"]], "t": [True, False]}
    rows = as_rows(columns)
    assert isinstance(rows, Dataset)
    assert json.loads(json.dumps(rows.to_dict())) == {**columns, "y": [1.0, 2.5]}
