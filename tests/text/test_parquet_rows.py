"""Rows of parquet files: every kind of writing gives the same texts, and few of them are held at once."""

import pyarrow
import pyarrow.parquet as pq
import pytest

from tercet.text import record_files
from tercet.text.documents import open_documents

TEXTS = ["One.", "é" * 40, "One.", None, "Three, four.", "One."] * 300
READ = [text for text in TEXTS if text]


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string()], ids=str)
@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize("row_group_size", [1, 7, 10_000])
def test_texts_are_those_that_were_written(tmp_path, kind, use_dictionary, row_group_size):
    table = pyarrow.table({"n": range(len(TEXTS)), "text": pyarrow.array(TEXTS, kind)})
    options = {"use_dictionary": use_dictionary, "row_group_size": row_group_size, "data_page_size": 64}
    pq.write_table(table, tmp_path / "part.parquet", dictionary_pagesize_limit=60, **options)
    assert list(open_documents(tmp_path / "part.parquet")) == READ


def test_a_column_that_was_a_dictionary_is_read(tmp_path):
    pq.write_table(
        pyarrow.table({"text": pyarrow.array(TEXTS).dictionary_encode()}), tmp_path / "part.parquet"
    )
    assert list(open_documents(tmp_path / "part.parquet")) == READ


@pytest.mark.parametrize("number", [1, 30, 300])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_memory_is_that_of_a_few_rows(tmp_path, number, use_dictionary, monkeypatch):
    """Some texts of 40,000 characters that are named 600 times together: 24 MB."""
    monkeypatch.setattr(record_files, "BYTES_AT_ONCE", 2**20)
    texts = [f"{one:04}" * 10_000 for one in range(number)] * (600 // number)
    file = tmp_path / "part.parquet"
    pages = {"data_page_size": 2**18, "write_batch_size": 1}
    pq.write_table(pyarrow.table({"text": texts}), file, use_dictionary=use_dictionary, **pages)
    pool, before, peak = pyarrow.default_memory_pool(), pyarrow.total_allocated_bytes(), 0
    for text, expected in zip(open_documents(file), texts, strict=True):
        assert text == expected
        peak = max(peak, pool.bytes_allocated() - before)
    assert peak < 6 * 2**20


def test_a_text_beyond_the_largest_record_is_bad_and_never_made(tmp_path):
    texts = ["a" * 50, "b" * 5000, "ü" * 50]
    pq.write_table(pyarrow.table({"text": texts}), tmp_path / "part.parquet")
    with pytest.warns(UserWarning, match=r"skipped 1 of 3 .*row 2: has more than 99 characters"):
        read = list(open_documents(tmp_path / "part.parquet", largest_record=99, skip_bad_records=True))
    assert read == [texts[0], texts[2]]
