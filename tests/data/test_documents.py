"""Documents from every source: formats, compressions, folders, pairs, the Hub."""

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
import zstandard
from datasets import Audio, Dataset

from tercet.data.documents import HubDocuments, open_documents
from tercet.data.files.problems import Limit

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
TEXTS = ["One here.\nTwo here, é.", "Three.", "Four, with a comma."]
ROWS = [{"text": text, "other": f"<{text}>", "n": number} for number, text in enumerate(TEXTS)]
PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


def write(folder: Path, ending: str, compression: str = "", name: str = "part") -> Path:
    """Write the texts as a file of any format."""
    file = folder / f"{name}{ending}"
    table = pandas.DataFrame(ROWS)
    if ending in (".txt", ".text"):
        file.write_text("\n\n".join(TEXTS), encoding="utf-8")
    elif ending == ".md":
        file.write_text("# One\n\nTwo.\n\n- Three.", encoding="utf-8")
    elif ending == ".jsonl":
        file.write_text("\n".join(json.dumps(row) for row in ROWS), encoding="utf-8")
    elif ending == ".json":
        file.write_text(json.dumps(ROWS, indent=2), encoding="utf-8")
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
@pytest.mark.parametrize("ending", [".txt", ".text", ".json", ".jsonl", ".csv", ".tsv", ".parquet"])
def test_every_format_and_compression_is_read(tmp_path, ending, compression):
    documents = open_documents(str(write(tmp_path, ending, compression)))
    assert list(documents) == TEXTS
    assert list(documents) == TEXTS, "as often as one likes"


@pytest.mark.parametrize("compression", PACK)
def test_a_file_of_markdown_is_a_document(tmp_path, compression):
    assert list(open_documents(write(tmp_path, ".md", compression))) == ["# One\n\nTwo.\n\n- Three."]


def test_lines_of_objects_may_be_called_json(tmp_path):
    lines = write(tmp_path, ".jsonl")
    assert list(open_documents(lines.rename(tmp_path / "part.json"))) == TEXTS


def test_folders_are_read_in_the_order_of_names(tmp_path):
    write(tmp_path, ".jsonl", name="a")
    (tmp_path / "inner").mkdir()
    write(tmp_path / "inner", ".txt", ".gz", name="b")
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


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ([{"en": "", "de": "B"}, {"en": "c", "de": None}], "2 of 4 pairs have text on one side only"),
        ([{"en": "b"}, {"en": 3, "de": "C"}], "skipped 2 of 4 records"),
    ],
)
def test_pairs_stay_in_step_when_a_side_is_empty_or_bad(tmp_path, others, told):
    file, skip = tmp_path / "pairs.jsonl", told.startswith("skipped")
    rows = [{"en": "a", "de": "A"}, *others, {"en": "d", "de": "D"}]
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.warns(UserWarning, match=told):
        sides = [
            list(open_documents(file, column=column, required=("en", "de"), skip_bad_records=skip))
            for column in ("en", "de")
        ]
    assert sides == [["a", "d"], ["A", "D"]]


def test_where_all_is_bad_nothing_is_left(tmp_path):
    file = tmp_path / "wide.txt"
    file.write_bytes("One.\n\nTwo.".encode("utf-16"))
    with pytest.raises(
        ValueError, match=r"has no text \(skipped 1 of 1 records as bad: .*line 1: .*it is UTF-16"
    ):
        list(open_documents(file, skip_bad_records=True))


def test_frames_packed_one_by_one_are_all_read(tmp_path):
    file = tmp_path / "frames.txt.zst"
    file.write_bytes(b"".join(zstandard.compress(f"{text}\n\n".encode()) for text in TEXTS))
    assert list(open_documents(file)) == TEXTS


@pytest.mark.parametrize("name", ["missing.txt", "./missing", "/missing/folder", "a/b/c"])
def test_a_missing_file_is_named(name):
    with pytest.raises(FileNotFoundError, match=f"corpus .*{Path(name).name} does not exist"):
        open_documents(name)


def test_hub_data_sets_are_opened_by_name_configuration_and_split(monkeypatch):
    calls = []

    def load_dataset(*arguments, **options):
        calls.append((*arguments, options))
        return Dataset.from_list(ROWS)

    monkeypatch.setattr("tercet.data.files.data_sets.load_dataset", load_dataset)
    documents = open_documents("someone/texts:english", split="validation", streaming=True)
    assert isinstance(documents, HubDocuments)
    assert list(documents) == TEXTS
    assert calls == [("someone/texts", "english", {"split": "validation", "streaming": True})]


@pytest.mark.parametrize("is_stream", [False, True])
def test_other_columns_of_hub_data_sets_stay_packed(monkeypatch, is_stream):
    """As in huggingface/datasets#7678: sounds that nobody asked for need another library to be unpacked."""
    rows = [{"text": text, "sound": {"bytes": b"none", "path": None}} for text in TEXTS]
    dataset = Dataset.from_list(rows).cast_column("sound", Audio())
    monkeypatch.setattr(
        "tercet.data.files.data_sets.load_dataset",
        lambda *_, **__: dataset.to_iterable_dataset() if is_stream else dataset,
    )
    assert list(open_documents("someone/texts")) == TEXTS
    with pytest.raises(
        ValueError, match=r"\(train\) has no column 'texts': name one of its columns \(text, sound\)"
    ):
        list(open_documents("someone/texts", column="texts"))


def test_a_changed_stream_has_another_fingerprint(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "someone" / "texts").mkdir(parents=True)
    known = []
    for text in TEXTS:
        (tmp_path / "someone" / "texts" / "train.jsonl").write_text(json.dumps({"text": text}))
        documents = HubDocuments("text", ("text",), False, Limit(), "someone/texts", None, "train", True)
        known += [documents.fingerprint(), documents.identify()[0]["fingerprint"]]
    assert len(set(known)) == 2 * len(TEXTS)


def test_a_name_that_is_nothing_says_so(monkeypatch):
    def load_dataset(*arguments, **options):
        raise ConnectionError("no network\nand more lines")

    monkeypatch.setattr("tercet.data.files.data_sets.load_dataset", load_dataset)
    with pytest.raises(
        ValueError, match=r"someone/texts .* nor a data set .*\(no network\): check"
    ) as caught:
        list(open_documents("someone/texts"))
    assert "\n" not in str(caught.value)


def test_a_changed_file_has_another_fingerprint(tmp_path):
    file = write(tmp_path, ".txt")
    before = open_documents(file).fingerprint()
    assert open_documents(file).fingerprint() == before
    times = file.stat()
    file.write_text(file.read_text().swapcase())
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert open_documents(file).fingerprint() != before


def test_an_equal_file_elsewhere_has_the_same_fingerprint(tmp_path):
    file = write(tmp_path, ".txt")
    before = open_documents(file).fingerprint()
    (tmp_path / "inner").mkdir()
    assert open_documents(shutil.move(file, tmp_path / "inner")).fingerprint() == before


def test_a_text_is_known_by_name_size_and_hash(tmp_path):
    file = write(tmp_path, ".txt")
    (known,) = open_documents(file).identify()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert known == {"name": file.name, "bytes": file.stat().st_size, "sha256": digest}
    file.write_text("Something else.")
    (changed,) = open_documents(file).identify()
    assert changed["sha256"] == hashlib.sha256(b"Something else.").hexdigest()


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
