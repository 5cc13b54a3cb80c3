"""Columns of tables: numbers compare as numbers, and prompts show what is written."""

import warnings

import pytest
from pydantic import TypeAdapter

from tercet.fewshot.prompts.templates import Template
from tercet.fewshot.recipe import DataRecipe
from tercet.fewshot.rows import as_numbers, files_of, items_of, read_rows
from tercet.fewshot.tasks.recipes import TaskRecipe


def test_a_number_of_a_table_is_shown_as_it_is_written_and_compares_as_a_number(tmp_path):
    (tmp_path / "rows.csv").write_text("price,code\n19.90,007\n2,1\n1e3,2\n")
    rows = read_rows(DataRecipe(test="x"), str(tmp_path / "rows.csv"))
    shown = Template("prompt", "{{ price }} {{ code }}")
    assert [shown(row) for row in rows] == ["19.90 007", "2 1", "1e3 2"]
    is_dear = Template("data.where", "price > 15 and price * 2 < 40", is_expression=True)
    assert [is_dear(row) for row in rows] == [True, False, False]


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("text,text,label\na,b,0\n")
    with pytest.raises(ValueError, match=r"rows.csv has several columns 'text': give all but one another"):
        read_rows(DataRecipe(test="x"), str(tmp_path / "rows.csv"))


def test_a_column_called_row_is_that_column():
    assert Template("prompt", "{{ row }}")({"row": "a", "text": "b"}) == "a"
    assert Template("prompt", "{{ row.text }}")({"text": "b"}) == "b"


def test_a_column_of_numbers_has_nothing_else():
    assert as_numbers(["1", "", "3"]) == [1, None, 3]
    assert as_numbers(["1.5", " ", "3"]) == [1.5, None, 3.0]
    for texts in (["", ""], ["007", "12"], ["1", "", "NA"], ["nan", "inf"]):
        assert as_numbers(texts) == texts


@pytest.mark.parametrize(
    ("where", "kept"), [("keep", [0]), ("number", [1]), ("written == 'True'", [0]), ("not keep", [1, 2])]
)
def test_rows_are_selected_by_truths_numbers_and_null(where, kept):
    values = [(True, 0, "True"), (False, 0.5, "False"), (None, None, "False")]
    rows = [{"keep": keep, "number": number, "written": text, "text": "a"} for keep, number, text in values]
    task = TypeAdapter(TaskRecipe).validate_python({"kind": "completion"} | KINDS["completion"]).build()
    assert [item.number for item in items_of(task, DataRecipe("r", where=where), "r", rows)] == kept


KINDS = {
    "multiple_choice": {"context": "{{ text }}", "choices": ["yes", "no"], "target": "0"},
    "completion": {"context": "{{ text }}", "answer": "yes"},
    "generation": {"context": "{{ text }}", "answers": "yes"},
    "partial_evaluation": {"contexts": "[text, 'b']", "continuation": "yes", "target": "0"},
}


def test_answers_that_seem_to_count_from_1_are_told():
    recipe = {"kind": "multiple_choice", "context": "{{ text }}", "choices": "texts", "target": "right"}
    task = TypeAdapter(TaskRecipe).validate_python(recipe).build()
    texts = {"text": "a", "texts": ["w", "x", "y", "z"]}
    rows = [texts | {"right": 1 + number % 3} for number in range(40)]
    told = "'right' is to count choices from 0, but none of 40 rows has 0: .* write task.target: .TARGET. - 1"
    with pytest.warns(UserWarning, match=told):
        items_of(task, DataRecipe("r"), "r", rows)
    with warnings.catch_warnings(action="error"):
        items_of(task, DataRecipe("r"), "r", [*rows, texts | {"right": 0}])
        items_of(task, DataRecipe("r"), "r", [row | {"right": "xyz"[row["right"] - 1]} for row in rows])


@pytest.mark.parametrize("kind", KINDS)
def test_two_spaces_before_an_answer_are_told(kind):
    def items(**fields):
        task = TypeAdapter(TaskRecipe).validate_python({"kind": kind} | KINDS[kind] | fields).build()
        return items_of(task, DataRecipe("rows.csv"), "rows.csv", [{"text": "Is it? "}, {"text": "Is it?"}])

    with pytest.warns(UserWarning, match="rows.csv: 1 of 2 prompts have two spaces before an answer, which"):
        items()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(items(delimiter="")) == len(items(delimiter="\n")) == 2


def test_a_path_is_one_from_the_current_folder(tmp_path, monkeypatch):
    """As in every other recipe."""
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    monkeypatch.chdir(tmp_path)
    data = DataRecipe(test="rows.jsonl")
    assert read_rows(data, data.test) == [{"text": "a"}]
    assert [file.exists() for file in files_of(data)] == [True]
