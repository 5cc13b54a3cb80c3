"""A .csv file of a spreadsheet is read, whatever separates its fields; with commas, nothing changes."""

import warnings

import pytest

from tercet.data.files.rows import read_file, stream_rows
from tercet.data.files.tables import find_delimiter


@pytest.mark.parametrize(
    ("header", "columns", "delimiter"),
    [
        ("text,label", ["text", "label"], ","),
        ("text;label", ["text", "label"], ";"),
        ("text\tlabel", ["text", "label"], "\t"),
        ('"a;b",text', ["text"], ","),
        ("text;a,b,c", ["text"], ";"),
        ("text", ["text"], ","),
        ("body;title;class", ["text"], ";"),
        ("body,title", ["text"], ","),
        ("", ["text"], ","),
        ('"open', ["text"], ","),
        ("text;label", [], ";"),
        ("text;a,b,c", [], ","),
        ("text", [], ","),
    ],
)
def test_the_first_line_decides(header, columns, delimiter):
    assert find_delimiter(header, columns) == delimiter


@pytest.mark.parametrize(("delimiter", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_fields_may_be_separated_otherwise_which_is_told(delimiter, name, tmp_path):
    file = tmp_path / "reviews.csv"
    file.write_text(f'text{delimiter}label\n"one{delimiter} two"{delimiter}good\nthree, four{delimiter}bad\n')
    with pytest.warns(UserWarning, match=f"reviews.csv: its fields are separated by {name}"):
        rows = read_file(str(file), ["text", "label"])
    assert rows["text"] == [f"one{delimiter} two", "three, four"]
    assert rows["label"] == ["good", "bad"]
    with pytest.warns(UserWarning, match="separated by"):
        assert list(stream_rows(str(file), (), with_others=True)) == rows.to_list()


def test_commas_are_told_of_by_nothing(tmp_path):
    file = tmp_path / "reviews.csv"
    file.write_text("text,label\none; two,good\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_file(str(file), ["text", "label"])["text"] == ["one; two"]


def test_a_missing_column_is_answered_with_the_columns_that_there_are(tmp_path):
    file = tmp_path / "reviews.csv"
    file.write_text("body;class\nx;y\n")
    with (
        pytest.warns(UserWarning, match="semicolons"),
        pytest.raises(ValueError, match=r"no column 'text'.*body, class"),
    ):
        read_file(str(file), ["text"])
