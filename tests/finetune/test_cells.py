"""Cells of tables: texts for all readers, of which numbers are made where a task needs them."""

import csv
import io

import pytest

from tercet.data.files.columns import number_of, texts_of
from tercet.data.files.rows import read_file, stream_rows
from tercet.finetune.tasks.regression import numbers_in


@pytest.fixture
def file(tmp_path):
    """Write a file, and give its path as a recipe has it."""

    def file(name: str, contents: str) -> str:
        (tmp_path / name).write_text(contents, encoding="utf-8", newline="")
        return str(tmp_path / name)

    return file


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("0", 0), ("-12", -12), (" 1", 1), ("1.5", 1.5), ("-3e-2", -0.03), (".5", 0.5), ("4.", 4.0),
        ("19.90", 19.9),
        ("9" * 18, int("9" * 18)), ("9" * 19, None), ("", None), ("007", None), ("NA", None), ("nan", None),
        ("1_000", None), ("٣", None), ("+49", None), ("true", None),
        (3, 3), (2.5, 2.5), (True, None), (float("inf"), None), (None, None), ([1], None),
    ],
)  # fmt: skip
def test_a_number_is_what_is_written_as_one_and_no_other(written, number):
    found = number_of(written)
    assert (found, type(found)) == (number, type(number))


def test_what_is_no_number_is_named_with_its_own_row(file):
    rows = read_file(file("rows.csv", "score\n1\n2.5\n3\n4\n5\nsix\n7\n"), ["score"])
    with pytest.raises(ValueError, match="row 6 has 'six' in column 'score', which is no number"):
        numbers_in(rows, "score")


CELLS = ["19.90", "007", "1.0", "1", " 2", "NA", "1e3", "-0", "3.", "١", "two\nlines", '5" pipe', "a,b"]  # noqa: RUF001


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_a_cell_of_a_table_is_the_text_that_stands_there_for_every_reader(file, delimiter):
    """Also in a column that has numbers alone."""
    for cells in (CELLS, ["19.90", "2", "1e3"]):
        table = io.StringIO()
        csv.writer(table, delimiter=delimiter).writerows(
            [["text", "label"], *([cell, "x"] for cell in cells)]
        )
        source = file(f"rows.{'csv' if delimiter == ',' else 'tsv'}", table.getvalue())
        whole = read_file(source, ["text"])
        assert texts_of(whole, "text") == cells
        assert [row["text"] for row in stream_rows(source, ["text"])] == cells
