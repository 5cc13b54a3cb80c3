"""Files of rows: what is no text is a bad row however it is read, and what was changed is read anew."""

import io
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tercet.data.files.row_files import read_file, stream_file
from tercet.data.files.rows import lines_of_json, read_rows

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
        lambda: list(stream_file(source, ["text"])),
        lambda: read_rows(source, ["text", "label"], "data.train"),
    ]
    for read in readers:
        with pytest.raises(ValueError, match=rf"{name}, line 2: 'text' holds U.D[8F].., which is no"):
            read()
    assert len(read_file(source, ["label"])) == 3, "other columns do not matter"
    kept = read_rows(source, ["text", "label"], "data.train", on_bad_row="skip", check=lambda rows: None)
    assert (len(kept.rows), kept.tally.left_out.total()) == (2, 1)


def test_half_a_surrogate_pair_is_refused_on_standard_input():
    with pytest.raises(ValueError, match=r"row 2 is bad: 'text' holds U.D800"):
        list(lines_of_json(["text"], io.StringIO(HALF["rows.jsonl"])))


def test_a_key_that_is_there_twice_is_refused_on_standard_input():
    with pytest.raises(ValueError, match=r"row 1 is '.*key 'text' is there several times\): write a JSON"):
        list(lines_of_json(["text"], io.StringIO('{"text": "a", "text": "b"}\n')))


def test_a_parquet_file_changed_with_equal_size_and_time_is_read_anew(tmp_path):
    path = tmp_path / "rows.parquet"
    for text in ("one", "two"):
        pq.write_table(pa.table({"text": [text]}), path)
        os.utime(path, (10**9, 10**9))
        assert read_file(str(path), ["text"])["text"][:] == [text]
