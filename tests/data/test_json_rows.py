"""A .json file holds what is written, in whichever form: dates are texts, and whole numbers are whole."""

import gzip
import json

import pytest

from tercet.data.files.columns import texts_of
from tercet.data.files.rows import read_file, stream_rows

VALUES = ["2020-01-01", "12:30", "1999-12-31T23:59:59Z", "007", "NA", "true"]


@pytest.mark.parametrize(
    "values", [VALUES, [2**53 + 1, -(2**53) - 1, 0], [0.1, 1e300, None], [True, None], [["a"], []]]
)
def test_json_holds_what_is_written_in_either_form(tmp_path, values):
    rows = [{"date": value, "modified": value} for value in values]
    lines = "\n".join(json.dumps(row) for row in rows)
    written = {
        "lines.jsonl": lines,
        "lines.json": lines,
        "list.json": "\ufeff" + json.dumps(rows, indent=2) + "\n",
        "list.json.gz": json.dumps(rows),
    }
    for name, text in written.items():
        contents = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(contents) if name.endswith(".gz") else contents)
        source = str(tmp_path / name)
        found = read_file(source, ["date", "modified"])
        assert [found["date"][:], found["modified"][:]] == [values, values], name
        assert list(stream_rows(source, ["date"], with_others=True)) == rows, name


def test_a_whole_number_beside_others_is_a_text_without_a_fraction(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": 1}\n{"text": 2.5}\n{"text": null}\n{"text": -3}\n')
    rows = read_file(str(file), ["text"]).select([0, 1, 3])
    assert texts_of(rows, "text") == ["1", "2.5", "-3"]
    assert rows["text"][:] == [1, 2.5, -3]


def test_what_is_no_object_in_a_json_file_is_told(tmp_path):
    file = tmp_path / "rows.json"
    file.write_text('[{"text": "a"}, 3]')
    with pytest.raises(ValueError, match=r"rows.json, line 1: not keys with values but int"):
        read_file(str(file), ["text"])
    file.write_text('[{"x": 1}, {"x": "b"}]')
    with pytest.raises(ValueError, match=r"rows.json.* has 'b' in column 'x', where the rows before it"):
        read_file(str(file), ["x"])
