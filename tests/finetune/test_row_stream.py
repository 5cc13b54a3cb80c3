"""Rows that are read as they are needed are whole: each with all of its columns."""

import io
import json

from tercet.data.files.rows import stream_rows

from .conftest import ROWS, write_rows


def test_every_row_of_a_stream_has_all_of_its_columns(tmp_path):
    """As many rows as the file has: columns are no shards, which `datasets` would take lists for."""
    for kind, columns in (
        ("question_answering", ("question", "context")),
        ("ranking", ("query", "positive")),
    ):
        rows = ROWS[kind](5, 0)
        file = write_rows(tmp_path / "rows.jsonl", rows)
        wanted = [{column: row[column] for column in columns} for row in rows]
        assert list(stream_rows(str(file), columns)) == wanted
        assert list(stream_rows(str(file), columns, with_others=True)) == rows


def test_standard_input_has_all_columns(monkeypatch):
    rows = ROWS["multiple_choice"](4, 0)
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert list(stream_rows("-", ["query", "choices"], with_others=True)) == rows


def test_standard_input_may_begin_with_a_mark_and_end_with_blank_lines(monkeypatch):
    """As files may: an editor's byte order mark and last line feeds are no part of any row."""
    told = io.StringIO('\ufeff{"text": "one"}\n{"text": "two"}\n\n \n')
    monkeypatch.setattr("sys.stdin", told)
    assert list(stream_rows("-", ["text"])) == [{"text": "one"}, {"text": "two"}]
