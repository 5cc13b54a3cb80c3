"""Files of rows: what is no text is a bad row however it is read, and what was changed is read anew."""

import io
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tercet.data.files.rows import read_file, read_rows, stream_rows

HALF = {
    "rows.jsonl": '{"text": "a", "label": 1}\n{"text": "\\ud800", "label": 1}\n{"text": "b", "label": 0}\n',
    "deep.jsonl": '{"text": ["a"], "label": 1}\n{"text": ["\\udfff"], "label": 1}\n{"text": []}\n',
}


@pytest.mark.parametrize("name", HALF)
def test_half_a_surrogate_pair_is_a_bad_row_wherever_rows_are_read(tmp_path, name):
    (tmp_path / name).write_text(HALF[name])
    source = str(tmp_path / name)
    readers = [
        lambda: read_file(source, ["text", "label"]),
        lambda: list(stream_rows(source, ["text"])),
        lambda: read_rows(source, ["text", "label"], "data.train"),
    ]
    for read in readers:
        with pytest.raises(ValueError, match=rf"{name}, line 2: 'text' holds U.D[8F].., which is no"):
            read()
    assert len(read_file(source, ["label"])) == 3, "other columns do not matter"
    kept = read_rows(source, ["text", "label"], "data.train", on_bad_row="skip", check=lambda rows: None)
    assert (len(kept.rows), kept.tally.num_left_out) == (2, 1)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("plain text\n", r"line 1: not valid JSON \(Expecting value, character 1\)"),
        (
            '\n{"text": "a", "text": "b"}\n',
            r"line 2: not valid JSON \(the key 'text' is there .*\)",
        ),
        (HALF["rows.jsonl"], r"line 2: 'text' holds U.D800, which is no character of a text"),
    ],
)
def test_a_bad_line_of_standard_input_is_refused_with_an_example(monkeypatch, lines, problem):
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    remedy = r': write a JSON object in each line, such as \{"text": "\.\.\."\}'
    with pytest.raises(ValueError, match=f"standard input, {problem}{remedy}"):
        list(stream_rows("-", ["text"]))


def test_a_parquet_file_changed_with_equal_size_and_time_is_read_anew(tmp_path):
    path = tmp_path / "rows.parquet"
    for text in ("one", "two"):
        pq.write_table(pa.table({"text": [text]}), path)
        os.utime(path, (10**9, 10**9))
        assert read_file(str(path), ["text"])["text"][:] == [text]
