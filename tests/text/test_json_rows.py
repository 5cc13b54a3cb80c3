"""A .json file holds what is written, in whichever form: dates are texts, and whole numbers are whole."""

import gzip
import json

import pytest

from tercet.text.row_files import read_file, stream_file

VALUES = ["2020-01-01", "12:30", "1999-12-31T23:59:59Z", "007", "NA", "true"]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    "values", [VALUES, [2**53 + 1, -(2**53) - 1, 0], [0.1, 1e300, None], [True, None], [["a"], []]]
)
def test_json_holds_what_is_written_in_either_form(tmp_path, values, indent):
    rows = [{"date": value, "modified": value} for value in values]
    lines = "\n".join(json.dumps(row) for row in rows)
    written = {
        "lines.jsonl": lines,
        "lines.json": lines,
        "one-behind-another.json": "".join(json.dumps(row, indent=indent) for row in rows),
        "list.json": "\ufeff" + json.dumps(rows, indent=indent) + "\n",
        "list.json.gz": json.dumps(rows),
    }
    for name, text in written.items():
        contents = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(contents) if name.endswith(".gz") else contents)
        source = str(tmp_path / name)
        found = read_file(source, ["date", "modified"])
        assert [found["date"][:], found["modified"][:]] == [values, values], name
        assert list(stream_file(source, ["date"])) == rows, name


def test_what_is_no_object_in_a_json_file_is_told(tmp_path):
    file = tmp_path / "rows.json"
    file.write_text('[{"text": "a"}, 3]')
    with pytest.raises(ValueError, match=r"rows.json, row 2 is 3, not keys with values: write a list of obj"):
        read_file(str(file), ["text"])
    file.write_text('[{"x": 1}, {"x": "b"}]')
    with pytest.raises(ValueError, match=r"rows.json: row 2 has 'b' in column 'x', where the rows before it"):
        read_file(str(file), ["x"])
