"""Files of every kind: a record that is bad is named with its place, or left out; no other is lost."""

import csv
import gzip
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from tercet.data.documents import open_documents
from tercet.data.files.reading import require_columns_early

PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


def write(folder: Path, name: str, content: bytes = b"Good.") -> Path:
    file = folder / name
    file.write_bytes(content)
    return file


PARQUET = pyarrow.BufferOutputStream()
pyarrow.parquet.write_table(
    pyarrow.table({"text": pyarrow.array([b"a", b"b\xff"]).view(pyarrow.string())}), PARQUET
)
BROKEN = [
    (
        "cut.txt.gz",
        gzip.compress(b"A sentence.\n" * 500)[:-4],
        r", line \d+: cannot be read from here on \(Compressed file ended",
    ),
    (
        "cut.txt.zst",
        zstandard.compress(bytes(range(1, 128)) * 9)[:99],
        r", line 1: cannot be read from here on",
    ),
    ("cut.csv.gz", gzip.compress(b"text\na\n")[:-9], r", line \d: cannot be read from here on"),
    (
        "cut.parquet.gz",
        gzip.compress(b"PAR1" * 9)[:-9],
        r", row 1: cannot be read from here on \(Compressed file ended",
    ),
    ("none.txt.gz", b"not packed at all", r", line 1: cannot be read from here on .*Not a gzipped file"),
    ("nothing.txt.gz", b"", r", line 1: cannot be read from here on \(it is empty\)"),
    (
        "latin.txt",
        "One.\n\nTwo.\nCafé crème".encode("latin-1"),
        r", line 4: byte 0xe9 is not UTF-8; .*: iconv -f WINDOWS-1252 -t UTF-8 \S*latin.txt > NEW_FILE: corr",
    ),
    ("latin.jsonl", '{"text": "a"}\n{"n": "é"}'.encode("latin-1"), r", line 2: byte 0xe9 is not UTF-8"),
    ("latin.csv", "text,n\na,é".encode("latin-1"), r", line 2: byte 0xe9 is not UTF-8"),
    ("latin.parquet", PARQUET.getvalue().to_pybytes(), r", row 2: byte 0xff is not UTF-8"),
    ("wide.txt", "One.".encode("utf-16"), r", line 1: .*it is UTF-16, not UTF-8: iconv -f UTF-16 -t UTF-8 "),
    ("wider.csv", "text\na".encode("utf-32"), r", line 1: .*it is UTF-32, not UTF-8: iconv -f UTF-32 -t "),
    (
        "wide.jsonl.gz",
        gzip.compress('{"text": "a"}'.encode("utf-16")),
        r"UTF-16, not UTF-8: gzip -dc \S*wide.jsonl.gz \| iconv -f UTF-16 -t UTF-8 > NEW_FILE",
    ),
    (
        "wide.csv",
        "text\na".encode("utf-16-le"),
        r", line 1: cannot be read from here on \(a NUL byte is no text",
    ),
    (
        "zeros.txt",
        b"One.\n\nTwo.\n\0\0",
        r", line 4: a NUL byte is no text; if the file is UTF-16, convert it: iconv",
    ),
    ("zeros.jsonl", rb'{"text": "a\u0000"}', r", line 1: 'text' holds U\+0000, which is no character"),
    ("half.jsonl", rb'{"text": "a"}' b"\n" rb'{"text": "\ud83d"}', r", line 2: 'text' holds U\+D83D"),
    (
        "bad.jsonl",
        b'{"text": "a"}\n\n{"text": \n',
        r", line 3: not valid JSON \(Expecting value, character 11\)",
    ),
    ("deep.jsonl", b"[" * 10**5, r", line 1: not valid JSON \(maximum recursion"),
    (
        "long.jsonl",
        b'{"text": "a", "n": ' + b"1" * 5000 + b"}",
        r", line 1: not valid JSON \(Exceeds the limit",
    ),
    ("list.jsonl", b'{"text": "a"}\n["text"]', r", line 2: not keys with values but list"),
    (
        "number.jsonl",
        b'{"text": 5}',
        r", line 1: 'text' is no text but int: correct the file, or set corpus\.skip_",
    ),
    ("columns.jsonl", b'{"body": "x", "id": 1}', r", line 1: has no column 'text' but \(body, id\)"),
    (
        "columns.csv",
        b"body,id\nx,1",
        r"columns\.csv has no column 'text': name one .*\(body, id\) in corpus\.text_column",
    ),
    ("twice.csv", b"text,text\nx,1", r"twice\.csv has several columns 'text'"),
    (
        "twice.jsonl",
        b'{"text": "a"}\n{"text": "b", "text": "c"}\n',
        r"twice\.jsonl, line 2: not valid JSON \(the key 'text' is there several times\): correct",
    ),
    ("inner.json", b'[{"text": "b", "of": [{"a": 1, "a": 2}]}]', r"line 1: not valid JSON \(the key 'a' is"),
    (
        "ragged.csv",
        b'text,n\na,1\n"b\nb",2\nc,3,4,5\n',
        r", line 5: not valid CSV \(4 fields under 2 names\)",
    ),
    (
        "open.csv",
        b'text,n\na,1\n"b,2\nc,3\n',
        r", line 3: not valid CSV \(a quote holds 2 lines together: unexpected end of data\): close",
    ),
    ("quote.tsv", b'text\tn\n"a"b\t1\n', r", line 2: not valid CSV"),
    (
        "swallowed.tsv",
        b'text\tn\na\t1\n"b\t2\nc\t3\nd"\t4\n',
        r", line 3: not valid CSV \(a quote holds 3 lines together: each has the tabs of a row\): close",
    ),
    (
        "names.parquet",
        PARQUET.getvalue().to_pybytes().replace(b"text", b"t\xffxt"),
        r", row 1: cannot be read .*0xff",
    ),
    ("bad.parquet", b"123", r"bad\.parquet, row 1: cannot be read from here on"),
    ("empty.txt", b" \n\n", r"empty\.txt has no text: give"),
    ("empty.jsonl", b'{"text": ""}', r"empty\.jsonl has no text"),
    ("empty.csv", b"", r"empty\.csv has no text"),
    ("file.docx", b"", r"unknown ending: use \.txt, \.text, \.md, \.jsonl, \.json, .* \.gz or \.zst"),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN, ids=[name for name, *_ in BROKEN])
def test_a_broken_record_is_named_with_its_place_and_remedy(tmp_path, name, content, message):
    good = write(tmp_path, "good.txt")
    with pytest.raises(ValueError, match=message) as caught:
        list(open_documents(write(tmp_path, name, content)))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(open_documents(good)) == ["Good."]


GOOD_PARTS = [
    ("latin.txt", b"One.\n\nTwo.\n\xe9\n\nThree.", ["One.", "Three."], 3, "line 4: byte 0xe9"),
    ("bad.jsonl", b'{"text": "a"}\n{"text": \n[]\n{"text": "b"}', ["a", "b"], 4, "line 2: not valid JSON"),
    ("ragged.csv", b"text,n\na,1\nb\nc,3\n", ["a", "c"], 3, "line 3: not valid CSV"),
    (
        "cut.txt.gz",
        gzip.compress(b"One.\n\nTwo.\n\nThree." + bytes(range(128, 137)))[:-9],
        ["One.", "Two."],
        3,
        "line 5: cannot be",
    ),
    ("latin.parquet", PARQUET.getvalue().to_pybytes(), ["a"], 2, "row 2: byte 0xff"),
]


@pytest.mark.parametrize(
    ("name", "content", "kept", "records", "first"), GOOD_PARTS, ids=[name for name, *_ in GOOD_PARTS]
)
def test_bad_records_are_skipped_and_counted_on_demand(tmp_path, name, content, kept, records, first):
    good = write(tmp_path, "good.txt")
    documents = open_documents([write(tmp_path, name, content), good], skip_bad_records=True)
    skipped = records - len(kept)
    message = rf"skipped {skipped} of {records + 1} records as bad: .*{name}, {first}"
    with pytest.warns(UserWarning, match=message):
        assert list(documents) == [*kept, "Good."]


@pytest.mark.parametrize("mark", [",", "\t"])
@pytest.mark.parametrize("compression", PACK)
@pytest.mark.parametrize(
    "rows",
    [
        ['"b,2', "c,3", "d,4"],
        ['"b,2', "c,3", '"d', 'd",4'],
        ['"b,2', 'c"', "d,4"],
        ['"b "c"', 'd.",4'],
        ['"b"c,2'],
        ['"' + "b" * 2000 + ",2", 'c",3'],
    ],
)
def test_a_stray_quote_swallows_no_row_even_where_bad_ones_are_skipped(tmp_path, compression, mark, rows):
    content = "\n".join(["text,n", "a,1", *rows]).replace(",", mark).encode()
    name = f"{'part.csv' if mark == ',' else 'part.tsv'}{compression}"
    file = write(tmp_path, name, PACK[compression](content))
    found = open_documents(file, skip_bad_records=True, largest_record=1000)
    with pytest.raises(ValueError, match=r"line 3: not valid CSV \(.*\): close the quote, write"):
        list(found)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("wide.csv", "text,label\na,1\n".encode("utf-16"), r"wide.csv, line 1: .*it is UTF-16, not UTF-8"),
        ("quote.csv", b'text,label\na,1\n"b,2\nc,3\n', r"quote.csv, line 3: not valid CSV"),
        (
            "cut.jsonl.gz",
            gzip.compress(b'{"text": "a"}\n' * 9)[:-9],
            r"line \d+: cannot be read from here on",
        ),
        ("list.json", b'[{"text": "a"}, {"text": "b"}', r"list.json, line 1: .*the list does not end"),
    ],
)
def test_a_damaged_table_is_told_of_before_its_rows_are_read(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        require_columns_early(str(write(tmp_path, name, content)), ["text"])


@pytest.mark.parametrize(("ending", "head"), [(".txt", ""), (".jsonl", ""), (".csv", "text\n")])
def test_a_record_that_is_too_long_is_bad_and_the_next_is_read(tmp_path, ending, head):
    texts = ["a" * 50, "b" * 500_000, "c" * 50]
    lines = [
        json.dumps({"text": text}) if ending == ".jsonl" else text + "\n" * (ending == ".txt")
        for text in texts
    ]
    content = gzip.compress((head + "\n".join(lines)).encode())
    file = write(tmp_path, f"part{ending}.gz", content)
    with pytest.raises(ValueError, match=r"line \d: has more than 1,000 char.*corpus\.largest_record="):
        list(open_documents(file, largest_record=1000))
    with pytest.warns(UserWarning, match="skipped 1 of 3 records"):
        documents = list(open_documents(file, largest_record=1000, skip_bad_records=True))
    assert documents == [texts[0], texts[2]]


@pytest.mark.parametrize("compression", [".gz", ".zst"])
@pytest.mark.parametrize("ending", [".txt", ".jsonl", ".csv"])
def test_a_record_of_any_length_is_not_read_into_memory_beyond_the_bound(tmp_path, ending, compression):
    content = b"text\n" + b"a" * 50_000_000 + b"\n"
    file = write(tmp_path, f"part{ending}{compression}", PACK[compression](content))
    del content
    tracemalloc.start()
    try:
        records = list(open_documents(file, largest_record=10_000).records())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert any("has more than 10,000 characters" in str(row) for _, row in records)
    assert peak < 10_000_000


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("compression", PACK)
def test_lines_end_in_every_house_style_and_nowhere_else(tmp_path, end, compression):
    odd = "a\u2028b\x85c\x0bd\x0ce\x1cf"
    texts = [f"{odd} {number}" * 1000 for number in range(3)]
    text = PACK[compression](("\ufeff" + (end + end).join(texts) + end).encode())
    assert list(open_documents(write(tmp_path, f"part.txt{compression}", text))) == texts
    rows = end.join(json.dumps({"text": text}, ensure_ascii=False) for text in texts)
    file = write(tmp_path, f"part.jsonl{compression}", PACK[compression](("\ufeff" + rows).encode()))
    assert list(open_documents(file)) == texts


def test_tables_keep_their_texts_as_they_are(tmp_path):
    texts = ["007", "1.10", "NA", "null", "a\r\nb\n\nc", 'say "yes"', "x" * 10**6]
    file = tmp_path / "part.csv"
    with file.open("w", newline="") as target:
        csv.writer(target).writerows([["n", "text"], *enumerate(texts)])
    assert list(open_documents(file)) == texts


def test_folders_that_lead_into_themselves_or_nowhere_are_refused(tmp_path):
    write(tmp_path, "good.txt")
    (tmp_path / "inner").mkdir()
    link = tmp_path / "inner" / "outer"
    link.symlink_to(tmp_path)
    with pytest.raises(ValueError, match="inner/outer is a link to a folder that contains it"):
        open_documents(tmp_path)
    link.unlink()
    for name in ("self.txt", "pipe.txt"):
        path = tmp_path / "inner" / name
        path.symlink_to(path) if name == "self.txt" else os.mkfifo(path)
        for source in (tmp_path, path):
            with pytest.raises(
                (ValueError, FileNotFoundError), match=f"{name} (is not a file|does not exist)"
            ):
                open_documents(source)
        path.unlink()


def test_links_and_folders_with_the_names_of_files_are_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path / "elsewhere", "part.txt")
    (tmp_path / "corpus" / "folder.txt").mkdir(parents=True)
    (tmp_path / "corpus" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "corpus" / "folder.txt" / "link.txt").symlink_to(tmp_path / "elsewhere" / "part.txt")
    assert list(open_documents(tmp_path / "corpus")) == ["Good.", "Good."]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_closed_files_and_folders_are_named(tmp_path):
    file = write(tmp_path, "good.txt")
    file.chmod(0)
    with pytest.raises(ValueError, match=r"good\.txt cannot be read \(Permission denied\): check"):
        list(open_documents(file))
    (tmp_path / "inner").mkdir(mode=0)
    with pytest.raises(ValueError, match="inner cannot be read: check its permissions"):
        open_documents(tmp_path)


@pytest.mark.parametrize("twin", ["part.txt.gz", "part.txt.zst", "part.txt.GZ"])
def test_a_file_beside_its_compressed_twin_is_refused(tmp_path, twin):
    """In a folder; who lists the files means them all."""
    inner = tmp_path / "corpus" / "inner"
    inner.mkdir(parents=True)
    pack = PACK[Path(twin).suffix.lower()]
    files = [write(inner, "part.txt"), write(inner, twin, pack(b"Other."))]
    write(inner, "part.jsonl", b'{"text": "Row."}')
    told = rf"inner has part.txt and {twin}, which by their names are the same text: remove one"
    with pytest.raises(ValueError, match=told):
        open_documents(tmp_path / "corpus")
    assert list(open_documents(files)) == ["Good.", "Other."]
    files[1].rename(inner / f"other{twin}")
    assert sorted(open_documents(tmp_path / "corpus")) == ["Good.", "Other.", "Row."]


ROWS = [f"row {number}" for number in range(5000)]
PACKED_ROWS = gzip.compress("".join(f'{{"text": "{text}"}}\n' for text in ROWS).encode())


@pytest.mark.parametrize("zeros", [1, 512, 2**18])
@pytest.mark.parametrize("members", [1, 3])
def test_zeros_behind_a_gzip_file_are_ignored(tmp_path, zeros, members):
    file = write(tmp_path, "rows.jsonl.gz", PACKED_ROWS * members + bytes(zeros))
    assert list(open_documents(file)) == ROWS * members


@pytest.mark.parametrize("damage", [b"not packed", b"\0not packed"])
def test_rows_before_what_is_no_gzip_are_read(tmp_path, damage):
    file = write(tmp_path, "rows.jsonl.gz", PACKED_ROWS + damage)
    with pytest.raises(ValueError, match=r"line 5001: cannot be read from here on .*Not a gzipped file"):
        list(open_documents(file))
    with pytest.warns(UserWarning, match="skipped 1 of 5,001 records"):
        assert list(open_documents(file, skip_bad_records=True)) == ROWS
    cut = write(tmp_path, "cut.jsonl.gz", PACKED_ROWS[:-8])
    with pytest.warns(UserWarning, match=r"line 5001: cannot be read from here on \(Compressed file ended"):
        assert list(open_documents(cut, skip_bad_records=True)) == ROWS
