"""Every format is read, every compression, and every mistake gets one clear line."""

import csv
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pandas
import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from datasets import Dataset

from tercet.pretraining.documents import HubDocuments, open_documents

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
TEXTS = ["One here.\nTwo here, é.", "Three.", "Four, with a comma."]
ROWS = [{"text": text, "other": f"<{text}>", "n": number} for number, text in enumerate(TEXTS)]
PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


def write(folder: Path, ending: str, compression: str = "", name: str = "part") -> Path:
    """Write the texts as a file of any format."""
    file = folder / f"{name}{ending}"
    table = pandas.DataFrame(ROWS)
    if ending == ".txt":
        file.write_text("\n\n".join(TEXTS), encoding="utf-8")
    elif ending == ".jsonl":
        file.write_text("\n".join(json.dumps(row) for row in ROWS), encoding="utf-8")
    elif ending == ".parquet":
        table.to_parquet(file)
    else:
        table.to_csv(file, index=False, sep="\t" if ending == ".tsv" else ",")
    if compression:
        packed = file.with_name(file.name + compression)
        packed.write_bytes(PACK[compression](file.read_bytes()))
        file.unlink()
        return packed
    return file


@pytest.mark.parametrize("compression", PACK)
@pytest.mark.parametrize("ending", [".txt", ".jsonl", ".csv", ".tsv", ".parquet"])
def test_every_format_and_compression_is_read(tmp_path, ending, compression):
    documents = open_documents(str(write(tmp_path, ending, compression)))
    assert list(documents) == TEXTS
    assert list(documents) == TEXTS, "as often as one likes"


def test_folders_are_read_in_the_order_of_names(tmp_path):
    write(tmp_path, ".jsonl", name="a")
    (tmp_path / "inner").mkdir()
    write(tmp_path / "inner", ".txt", ".gz", name="b")
    (tmp_path / "README.md").write_text("not a corpus")
    assert list(open_documents(tmp_path)) == TEXTS + TEXTS


def test_lists_are_read_in_their_order(tmp_path):
    files = [write(tmp_path, ".txt"), write(tmp_path, ".jsonl")]
    (tmp_path / "part.txt").write_text("Other.")
    assert list(open_documents(files[::-1])) == [*TEXTS, "Other."]


def test_blank_lines_divide_documents_whatever_their_white_space(tmp_path):
    file = tmp_path / "part.txt"
    file.write_bytes("\ufeffOne.\r\nTwo.\r\n \t\r\n\r\nThree.\n\n\n".encode())
    assert list(open_documents(file)) == ["One.\nTwo.", "Three."]


def test_another_column_can_hold_the_text(tmp_path):
    assert list(open_documents(write(tmp_path, ".csv"), column="other"))[1] == "<Three.>"


def test_pairs_stay_in_step_when_a_side_is_empty(tmp_path):
    file = tmp_path / "pairs.jsonl"
    rows = [{"en": "a", "de": "A"}, {"en": "", "de": "B"}, {"en": "c", "de": None}, {"en": "d", "de": "D"}]
    file.write_text("\n".join(map(json.dumps, rows)))
    sides = [list(open_documents(file, column=column, required=("en", "de"))) for column in ("en", "de")]
    assert sides == [["a", "d"], ["A", "D"]]


def broken(folder: Path, name: str, content: bytes) -> Path:
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
        r", line \d+: cannot be read from here on \(Trunc",
    ),
    (
        "cut.txt.zst",
        zstandard.compress(bytes(range(1, 128)) * 9)[:99],
        r", line 1: cannot be read from here on",
    ),
    ("cut.csv.gz", gzip.compress(b"text\na\n")[:-9], r", line \d: cannot be read from here on"),
    ("cut.parquet.gz", gzip.compress(b"PAR1" * 9)[:-9], r", row 1: cannot be read from here on \(Truncated"),
    ("none.txt.gz", b"not packed at all", r", line 1: cannot be read from here on .*incorrect header"),
    ("nothing.txt.gz", b"", r", line 1: cannot be read from here on \(it is empty\)"),
    ("latin.txt", "One.\n\nTwo.\nCafé crème".encode("latin-1"), r", line 4: byte 0xe9 is not UTF-8 \(iconv"),
    ("latin.jsonl", '{"text": "a"}\n{"n": "é"}'.encode("latin-1"), r", line 2: byte 0xe9 is not UTF-8"),
    ("latin.csv", "text,n\na,é".encode("latin-1"), r", line 2: byte 0xe9 is not UTF-8"),
    ("latin.parquet", PARQUET.getvalue().to_pybytes(), r", row 2: byte 0xff is not UTF-8"),
    ("wide.txt", "One.".encode("utf-16"), r", line 1: byte 0xff is not UTF-8"),
    (
        "wide.csv",
        "text\na".encode("utf-16-le"),
        r", line 1: cannot be read from here on \(a NUL byte is no text",
    ),
    ("zeros.txt", b"One.\n\nTwo.\n\0\0", r", line 4: a NUL byte is no text: is this UTF-16"),
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
    ("columns.csv", b"body,id\nx,1", r"columns\.csv has no column 'text': name one .*\(body, id\)"),
    ("twice.csv", b"text,text\nx,1", r"twice\.csv has several columns 'text'"),
    (
        "ragged.csv",
        b'text,n\na,1\n"b\nb",2\nc,3,4,5\n',
        r", line 5: not valid CSV \(4 fields under 2 names\)",
    ),
    ("open.csv", b'text,n\na,1\n"b,2\nc,3\n', r", line 3: not valid CSV \(unexpected end of data\)"),
    ("quote.tsv", b'text\tn\n"a"b\t1\n', r", line 2: not valid CSV"),
    ("bad.parquet", b"123", r"bad\.parquet, row 1: cannot be read from here on"),
    ("empty.txt", b" \n\n", r"empty\.txt has no text: give"),
    ("empty.jsonl", b'{"text": ""}', r"empty\.jsonl has no text"),
    ("empty.csv", b"", r"empty\.csv has no text"),
    ("file.docx", b"", r"unknown ending: use \.txt, \.jsonl, .* \.gz or \.zst"),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN, ids=[name for name, *_ in BROKEN])
def test_a_broken_record_is_named_with_its_place_and_remedy(tmp_path, name, content, message):
    good = write(tmp_path, ".txt")
    with pytest.raises(ValueError, match=message) as caught:
        list(open_documents(broken(tmp_path, name, content)))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(open_documents(good)) == TEXTS


GOOD_PARTS = [
    ("latin.txt", b"One.\n\nTwo.\n\xe9\n\nThree.", ["One.", "Three."], 3, "line 4: byte 0xe9"),
    ("bad.jsonl", b'{"text": "a"}\n{"text": \n[]\n{"text": "b"}', ["a", "b"], 4, "line 2: not valid JSON"),
    ("open.csv", b'text,n\na,1\n"b"b,2\nc,3\n"d\n', ["a", "c"], 4, "line 3: not valid CSV"),
    ("cut.txt.gz", gzip.compress(b"One.\n\nTwo.\n\nThree." + os.urandom(9))[:-9], [], 1, "line 1: cannot be"),
    ("latin.parquet", PARQUET.getvalue().to_pybytes(), ["a"], 2, "row 2: byte 0xff"),
]


@pytest.mark.parametrize(
    ("name", "content", "kept", "records", "first"), GOOD_PARTS, ids=[name for name, *_ in GOOD_PARTS]
)
def test_bad_records_are_skipped_and_counted_on_demand(tmp_path, name, content, kept, records, first):
    good = write(tmp_path, ".txt", name="z")
    documents = open_documents([broken(tmp_path, name, content), good], skip_bad_records=True)
    skipped = records - len(kept)
    message = rf"skipped {skipped} of {records + len(TEXTS)} records as bad: .*{name}, {first}"
    with pytest.warns(UserWarning, match=message):
        assert list(documents) == [*kept, *TEXTS]


def test_where_all_is_bad_nothing_is_left(tmp_path):
    file = broken(tmp_path, "wide.txt", "One.\n\nTwo.".encode("utf-16"))
    with pytest.raises(ValueError, match=r"has no text \(skipped 1 of 1 records as bad: .*line 1: byte 0xff"):
        list(open_documents(file, skip_bad_records=True))


def test_pairs_stay_in_step_when_a_side_is_bad(tmp_path):
    rows = [{"en": "a", "de": "A"}, {"en": "b"}, {"en": 3, "de": "C"}, {"en": "d", "de": "D"}]
    file = broken(tmp_path, "pairs.jsonl", "\n".join(map(json.dumps, rows)).encode())
    with pytest.warns(UserWarning, match="skipped 2 of 4 records"):
        sides = [
            list(open_documents(file, column=column, required=("en", "de"), skip_bad_records=True))
            for column in ("en", "de")
        ]
    assert sides == [["a", "d"], ["A", "D"]]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("compression", PACK)
def test_lines_end_in_every_house_style_and_nowhere_else(tmp_path, end, compression):
    odd = "a\u2028b\x85c\x0bd\x0ce\x1cf"
    texts = [f"{odd} {number}" * 1000 for number in range(3)]
    text = PACK[compression](("\ufeff" + (end + end).join(texts) + end).encode())
    assert list(open_documents(broken(tmp_path, f"part.txt{compression}", text))) == texts
    rows = end.join(json.dumps({"text": text}, ensure_ascii=False) for text in texts)
    file = broken(tmp_path, f"part.jsonl{compression}", PACK[compression](("\ufeff" + rows).encode()))
    assert list(open_documents(file)) == texts


def test_tables_keep_their_texts_as_they_are(tmp_path):
    texts = ["007", "1.10", "NA", "null", "a\r\nb\n\nc", 'say "yes"', "x" * 10**6]
    file = tmp_path / "part.csv"
    with file.open("w", newline="") as target:
        csv.writer(target).writerows([["n", "text"], *enumerate(texts)])
    assert list(open_documents(file)) == texts


def test_folders_that_lead_into_themselves_or_nowhere_are_refused(tmp_path):
    write(tmp_path, ".txt")
    (tmp_path / "inner").mkdir()
    link = tmp_path / "inner" / "outer"
    link.symlink_to(tmp_path)
    with pytest.raises(ValueError, match="inner/outer is a link to a folder that it lies in"):
        open_documents(tmp_path)
    link.unlink()
    for name in ("self.txt", "pipe.txt"):
        path = tmp_path / "inner" / name
        path.symlink_to(path) if name == "self.txt" else os.mkfifo(path)
        for source in (tmp_path, path):
            with pytest.raises((ValueError, FileNotFoundError), match=f"{name} (is no file|does not exist)"):
                open_documents(source)
        path.unlink()


def test_links_and_folders_with_the_names_of_files_are_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path / "elsewhere", ".txt")
    (tmp_path / "corpus" / "folder.txt").mkdir(parents=True)
    (tmp_path / "corpus" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "corpus" / "folder.txt" / "link.txt").symlink_to(tmp_path / "elsewhere" / "part.txt")
    assert list(open_documents(tmp_path / "corpus")) == TEXTS + TEXTS


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_closed_files_and_folders_are_named(tmp_path):
    file = write(tmp_path, ".txt")
    file.chmod(0)
    with pytest.raises(ValueError, match=r"part\.txt cannot be read \(Permission denied\): check"):
        list(open_documents(file))
    (tmp_path / "inner").mkdir(mode=0)
    with pytest.raises(ValueError, match="inner cannot be read: check its permissions"):
        open_documents(tmp_path)


def test_frames_packed_one_by_one_are_all_read(tmp_path):
    file = tmp_path / "frames.txt.zst"
    file.write_bytes(b"".join(zstandard.compress(f"{text}\n\n".encode()) for text in TEXTS))
    assert list(open_documents(file)) == TEXTS


@pytest.mark.parametrize("name", ["missing.txt", "./missing", "/missing/folder", "a/b/c"])
def test_a_missing_file_is_named(name):
    with pytest.raises(FileNotFoundError, match=f"corpus .*{Path(name).name} does not exist"):
        open_documents(name)


def test_a_folder_without_corpora_says_what_they_look_like(tmp_path):
    with pytest.raises(ValueError, match=r"has no corpus files: their names end in \.txt"):
        open_documents(tmp_path)


def test_hub_data_sets_are_opened_by_name_configuration_and_split(monkeypatch):
    calls = []

    def load_dataset(*arguments, **options):
        calls.append((*arguments, options))
        return Dataset.from_list(ROWS)

    monkeypatch.setattr("tercet.pretraining.documents.load_dataset", load_dataset)
    documents = open_documents("someone/texts:english", split="validation", streaming=True)
    assert isinstance(documents, HubDocuments)
    assert list(documents) == TEXTS
    assert calls == [("someone/texts", "english", {"split": "validation", "streaming": True})]


def test_a_name_that_is_nothing_says_so(monkeypatch):
    def load_dataset(*arguments, **options):
        raise ConnectionError("no network\nand more lines")

    monkeypatch.setattr("tercet.pretraining.documents.load_dataset", load_dataset)
    with pytest.raises(
        ValueError, match=r"someone/texts .* nor a data set .*\(no network\): check"
    ) as caught:
        list(open_documents("someone/texts"))
    assert "\n" not in str(caught.value)


def test_a_changed_file_has_another_fingerprint(tmp_path):
    file = write(tmp_path, ".txt")
    before = open_documents(file).fingerprint()
    assert open_documents(file).fingerprint() == before
    file.write_text("Something else.")
    assert open_documents(file).fingerprint() != before


@pytest.mark.skipif(not DATA.exists(), reason=f"needs the shared data in {DATA}")
def test_shared_data_are_read_unchanged():
    assert sum(1 for _ in open_documents(DATA / "pretrain_en" / "validation")) > 50
    english, german = (
        next(
            iter(
                open_documents(
                    DATA / "multi30k_en_de" / "train.jsonl.gz", column=column, required=("en", "de")
                )
            )
        )
        for column in ("en", "de")
    )
    assert english == "Two young, White males are outside near many bushes."
    assert german == "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."
