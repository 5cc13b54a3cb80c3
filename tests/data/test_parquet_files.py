"""Rows of parquet files: every kind of writing gives the same texts, and few of them are held at once."""

import gzip
import json
from datetime import date
from decimal import Decimal

import pyarrow
import pyarrow.parquet as pq
import pytest
import zstandard
from datasets import Dataset

from tercet.data.documents import open_documents
from tercet.data.files import compressed_files, parquet_files
from tercet.data.files.rows import read_file, stream_rows

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
    monkeypatch.setattr(parquet_files, "BYTES_AT_ONCE", 2**20)
    texts = [f"{one:04}" * 10_000 for one in range(number)] * (600 // number)
    file = tmp_path / "part.parquet"
    pages = {"data_page_size": 2**18, "write_batch_size": 1}
    pq.write_table(pyarrow.table({"text": texts}), file, use_dictionary=use_dictionary, **pages)
    pool, before, peak = pyarrow.default_memory_pool(), pyarrow.total_allocated_bytes(), 0
    for text, expected in zip(open_documents(file), texts, strict=True):
        assert text == expected
        peak = max(peak, pool.bytes_allocated() - before)
    assert peak < 6 * 2**20


def test_a_long_text_behind_short_ones_of_a_large_group_is_met_alone(tmp_path, monkeypatch):
    """The longest entry of a dictionary is known before any row is made: 200 of the last one are 20 MB."""
    monkeypatch.setattr(parquet_files, "BYTES_AT_ONCE", 2**16)
    texts = [*(f"{number:04}" for number in range(2000)), *["long" * 25_000] * 200]
    file = tmp_path / "part.parquet"
    pq.write_table(pyarrow.table({"text": texts}), file, data_page_size=64, write_batch_size=100)
    pool, before, peak = pyarrow.default_memory_pool(), pyarrow.total_allocated_bytes(), 0
    for text, expected in zip(open_documents(file), texts, strict=True):
        assert text == expected
        peak = max(peak, pool.bytes_allocated() - before)
    assert peak < 2**20


def test_a_text_beyond_the_largest_record_is_bad_and_never_made(tmp_path):
    texts = ["a" * 50, "b" * 5000, "ü" * 50]
    pq.write_table(pyarrow.table({"text": texts}), tmp_path / "part.parquet")
    with pytest.warns(UserWarning, match=r"skipped 1 of 3 .*row 2: has more than 99 characters"):
        read = list(open_documents(tmp_path / "part.parquet", largest_record=99, skip_bad_records=True))
    assert read == [texts[0], texts[2]]


@pytest.mark.parametrize("rows_at_once", [7, 1000])
@pytest.mark.parametrize("bytes_at_once", [100, 2**24])
def test_a_table_is_what_arrow_reads(tmp_path, monkeypatch, rows_at_once, bytes_at_once):
    monkeypatch.setattr(parquet_files, "ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(parquet_files, "BYTES_AT_ONCE", bytes_at_once)
    columns = {
        "text": ["a", "a longer one " * 9, None, "", "a"],
        "large": pyarrow.array(["a", None, "b", "b", "c"], pyarrow.large_string()),
        "category": pyarrow.array(["x", "y", "x", None, "y"]).dictionary_encode(),
        "words": [["a", "b"], [], None, ["a"], [None, "c"]],
        "object": [{"k": "a", "n": [1, 2]}, None, {"k": None, "n": []}, {"k": "b", "n": None}, None],
        "pairs": pyarrow.array(
            [[("a", 1)], [], None, [], []], pyarrow.map_(pyarrow.string(), pyarrow.int64())
        ),
        "number": [1, None, 3, 4, 5],
        "truth": [True, None, False, True, True],
        "bytes": [b"a", b"\xff", None, b"", b"a"],
        "money": [Decimal("1.20"), None, Decimal("3.00"), Decimal("1.20"), None],
        "day": [date(2026, 1, 2), None, None, None, None],
        "a.b": ["a", "b", "c", "d", "e"],
    }
    table = pyarrow.table(columns)
    table = pyarrow.concat_tables([table] * 6).combine_chunks()
    file = tmp_path / "rows.parquet"
    pq.write_table(table, file, row_group_size=11)
    for names in (
        list(columns)[::-1],
        ["text"],
        ["words", "a.b"],
        [name for name in columns if name != "pairs"],
    ):
        expected = pq.read_table(file, columns=names).select(names)
        assert list(stream_rows(str(file), names)) == expected.to_pylist()
        if "pairs" not in names:  # which data sets do not have
            assert read_file(str(file), names).data.table.equals(Dataset(expected).data.table)
    pq.write_table(table[:0], file)
    assert read_file(str(file), ["text"]).num_rows == 0


LARGE = "a" * 2**16
BOMBS = {
    "one text of many rows": [LARGE] * 500,
    "one text of many groups": [LARGE] * 500,
    "texts of lists": [[LARGE] * 100] * 5,
    "long lists": [["a"] * 2**19] * 4,
    "nothing": [None] * 2**21,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_with_large_columns_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(compressed_files, "LEAST_MOST", 2**22)
    kind = pyarrow.string() if name == "nothing" else None
    table = pyarrow.table({"text": pyarrow.array(BOMBS[name], kind)})
    options = {"compression": "zstd", "row_group_size": 20 if name == "one text of many groups" else None}
    pq.write_table(table, tmp_path / "rows.parquet", **options)
    with pytest.raises(
        ValueError, match=r"rows\.parquet holds more than [\d,]+ bytes .*: convert it to \.jsonl"
    ):
        read_file(str(tmp_path / "rows.parquet"), ["text"])
    if "list" not in name:
        with pytest.raises(ValueError, match=r"rows\.parquet holds more than"):
            list(open_documents(tmp_path / "rows.parquet"))


@pytest.mark.parametrize(
    "name", ["rows.jsonl.gz", "rows.jsonl.zst", "rows.csv.gz", "rows.parquet.gz", "book.txt.gz"]
)
def test_no_more_is_decompressed_than_a_file_of_its_size_may_become(tmp_path, monkeypatch, name):
    monkeypatch.setattr(compressed_files, "LEAST_MOST", 2**20)
    lines = [json.dumps({"text": "a " * 1000})] * 1500 if "jsonl" in name else ["text", *["a " * 1000] * 1500]
    whole = "\n".join(lines).encode()
    if "parquet" in name:
        pq.write_table(pyarrow.table({"text": [whole.decode()]}), tmp_path / "whole", compression="none")
        whole = (tmp_path / "whole").read_bytes()
    file = tmp_path / name
    file.write_bytes(zstandard.compress(whole) if name.endswith("zst") else gzip.compress(whole))
    with pytest.raises(
        ValueError, match=rf"{name} decompresses to more than .* decompress it yourself \((gzip|zstd) -dc "
    ):
        list(open_documents(file)) if name == "book.txt.gz" else read_file(str(file), ["text"])
    monkeypatch.setattr(compressed_files, "LEAST_MOST", 2**22)
    assert list(open_documents(file)) if name == "book.txt.gz" else read_file(str(file), ["text"])
