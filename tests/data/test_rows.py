"""Rows are read as they stand in their files, and whatever is wrong with them is said in one line."""

import gzip
import io
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from datasets import ClassLabel, Dataset, Features, Value

from tercet.data.files.columns import texts_of, values_of
from tercet.data.files.rows import read_file, read_rows, stream_rows

TEXTS = [
    "null",
    "NA",
    "N/A",
    "nan",
    "None",
    "#N/A",
    "-",
    "true",
    "3 apples",
    '"',
    "a,b",
    "a\tb",
    "a\nb",
    " x ",
]
"""What readers of tables are tempted to take for something else."""


@pytest.fixture
def file(tmp_path):
    """Write a file of a name with given contents, and give its path as a recipe has it."""

    def file(name: str, contents: str | bytes) -> str:
        data = contents if isinstance(contents, bytes) else contents.encode()
        packed = {".gz": gzip.compress, ".zst": zstandard.compress}.get(Path(name).suffix, bytes)
        path = tmp_path / name
        path.write_bytes(packed(data))
        return str(path)

    return file


def columns(source, *names):
    rows = read_file(source, names)
    assert rows.column_names == list(names)
    return [rows[name][:] for name in names]


def read(source, *names, **fields):
    return read_rows(source, names, "data.train", **fields).rows


def as_table(rows, delimiter=","):
    lines = ['"' + f'"{delimiter}"'.join(value.replace('"', '""') for value in row) + '"' for row in rows]
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("ending", "delimiter"), [("csv", ","), ("tsv", "\t"), ("csv.gz", ","), ("tsv.zst", "\t")]
)
def test_a_tables_texts_are_what_is_written(file, ending, delimiter):
    source = file(
        f"rows.{ending}", as_table([("text", "other"), *zip(TEXTS, TEXTS[::-1], strict=True)], delimiter)
    )
    assert columns(source, "text", "other") == [TEXTS, TEXTS[::-1]]
    assert [row["text"] for row in stream_rows(source, ["text"])] == TEXTS


@pytest.mark.parametrize("ending", ["jsonl", "json", "jsonl.gz", "json.gz"])
def test_texts_in_json_are_what_is_written(file, ending):
    source = file(f"rows.{ending}", "".join(json.dumps({"text": text, "label": 1}) + "\n" for text in TEXTS))
    assert columns(source, "label", "text") == [[1] * len(TEXTS), TEXTS]
    assert [row["text"] for row in stream_rows(source, ["text"])] == TEXTS


def test_parquet_keeps_the_names_of_labels(tmp_path):
    features = Features({"text": Value("string"), "label": ClassLabel(names=["no", "yes"])})
    path = tmp_path / "rows.parquet"
    Dataset.from_dict({"text": TEXTS, "label": [0, 1] * 7}, features=features).to_parquet(path)
    rows = read_file(str(path), ["label", "text"])
    assert rows.features["label"].names == ["no", "yes"]
    assert rows["text"][:] == TEXTS
    assert [row["text"] for row in stream_rows(str(path), ["text"])] == TEXTS


def test_whether_a_column_has_numbers_is_said_by_all_of_its_rows(file):
    """Readers that decide by the first ten thousand are wrong, or give up, where the next begin."""
    labels = ["1"] * 30_000 + ["one"]
    source = file("rows.csv", "".join(f"{line}\n" for line in ["label", *labels]))
    assert columns(source, "label") == [labels]
    numbers = [1] * 30_000 + [2.5]
    source = file("rows.jsonl", "".join(f'{{"label": {number}}}\n' for number in numbers))
    assert columns(source, "label") == [numbers]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_marks_and_ends_of_lines_are_no_text(file, mark, end):
    table = f'{mark}text,label{end}one,1{end}"first{end}second, ""quoted""",2{end}{end}Grüße 🌍,3'
    inner = f'first{end}second, "quoted"'
    assert columns(file("rows.csv", table), "text", "label") == [["one", inner, "Grüße 🌍"], ["1", "2", "3"]]
    lines = f'{mark}{{"text": "one", "label": 1}}{end}{end}{{"text": "Grüße 🌍", "label": 2}}{end}'
    assert columns(file("rows.jsonl", lines), "text", "label") == [["one", "Grüße 🌍"], [1, 2]]


def test_columns_that_are_not_asked_for_may_be_as_they_like(file):
    """Without a name, of several kinds, twice."""
    assert columns(file("rows.csv", ",text,x,x,\n0,one,1,a,\n1,two,,b,\n"), "text") == [["one", "two"]]
    lines = '{"id": 1, "text": "one"}\n{"id": "b", "text": "two", "more": [{}]}\n'
    assert columns(file("rows.jsonl", lines), "text") == [["one", "two"]]


def test_lists_and_objects_are_read(file):
    lines = '{"words": ["a", "b"], "answers": {"text": []}}\n{"words": ["c"], "answers": {"text": ["x"]}}\n'
    assert columns(file("rows.jsonl", lines), "words", "answers") == [
        [["a", "b"], ["c"]],
        [{"text": []}, {"text": ["x"]}],
    ]


@pytest.mark.parametrize(
    ("name", "contents", "complaint"),
    [
        ("rows.csv", "text,label\none,1\ntwo\n", r"rows.csv, line 3: .*1 fields under 2 names\): correct it"),
        ("rows.csv", "text,label\none,1\ntwo,2,3\n", r"rows.csv, line 3: .*3 fields under 2 names"),
        ("rows.csv", 'text,label\n"one" two,1\n', r"rows.csv, line 2: not valid CSV \(',' expected after"),
        ("rows.tsv", 'text\tlabel\none\t1\n"two\t2\nthree\t3\n', r"rows.tsv, line 3: not valid CSV"),
        ("rows.csv", "text,label\nGrüße,1\n".encode("latin-1"), r"line 2: byte 0xfc is not UTF-8; convert"),
        ("rows.csv", "text,label\none,1\n".encode("utf-16"), r"line 1.*(UTF-16|byte 0xff is not UTF-8)"),
        ("rows.csv", "text,text,label\na,b,1\n", "has several columns 'text': give all but one another name"),
        ("rows.csv", "text, label\na,1\n", r"no column 'label': give one of its columns \(text, ' label'\)"),
        ("rows.csv", "texts,label\na,1\n", r"no column 'text': give one of its columns \(texts, label\)"),
        ("rows.csv", "text,label\n", "rows.csv has no rows: name one that has some in data.train"),
        ("rows.csv", "", "rows.csv has no rows"),
        ("rows.csv", "text,label\none,\n", "rows.csv, line 2: row 1 has nothing in column 'label': take"),
        ("rows.jsonl", "", "rows.jsonl has no rows"),
        ("rows.jsonl", '{"text": "a", "label": 1}\n{"text": "b"\n', r"rows.jsonl, line 2: not valid JSON"),
        ("rows.jsonl", '["a", 1]\n', "rows.jsonl, line 1: not keys with values but list: correct it"),
        ("rows.jsonl", '{"text": "a"}\n', r"has no column 'label': give one of its columns \(text\)"),
        ("rows.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n', "row 2 has nothing in column 'label'"),
        ("rows.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": "c"}\n', "row 2 has 'c'.* where"),
        ("rows.jsonl", '{"text": "\\ud83d", "label": 1}\n', "line 1: 'text' holds U.D83D, which is no"),
        ("rows.jsonl", b'{"text": "\xfc", "label": 1}\n', "rows.jsonl, line 1: byte 0xfc is not UTF-8"),
        ("rows.jsonl", b"\xff\xfe{\x00}\x00", "rows.jsonl, line 1: "),
        ("rows.json", "[{]", "rows.json.*the list does not end"),
        ("rows.json", '[{"text": "a"}]', r"has no column 'label': give one of its columns \(text\)"),
        ("rows.parquet", b"PAR1 and so on", r"rows.parquet, row 1: cannot be read .*: correct it"),
        ("rows.txt", "text", r"ends in .txt: rows are read from .jsonl, .json, .csv, .tsv, .parquet,"),
        ("rows", "text", "ends in nothing: rows are read from"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_in_one_line(file, name, contents, complaint):
    source = file(name, contents)
    with pytest.raises(ValueError, match=complaint) as caught:
        read(source, "text", "label")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(source)


def test_a_file_that_breaks_off_is_told(file, tmp_path):
    lines = "".join(json.dumps({"text": str(number), "label": 1}) + "\n" for number in range(10_000))
    for name, contents in (("rows.csv.gz", "text,label\n" + "one,1\n" * 10_000), ("rows.jsonl.zst", lines)):
        source = file(name, contents)
        whole = Path(source).read_bytes()
        Path(source).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ValueError, match=rf"{name}, line \d+: cannot be read from here on"):
            read(source, "text", "label")
    table = pa.table({"text": ["one"] * 1000, "label": [1] * 1000})
    pq.write_table(table, tmp_path / "rows.parquet")
    data = (tmp_path / "rows.parquet").read_bytes()
    (tmp_path / "rows.parquet").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"rows.parquet, row 1: cannot be read from here on"):
        read(str(tmp_path / "rows.parquet"), "text", "label")


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=r".*rows.csv does not exist: name one that ends in .jsonl"):
        read(str(tmp_path / "rows.csv"), "text")
    with pytest.raises(FileNotFoundError, match="is no file"):
        read(str(tmp_path), "text")


def test_a_folder_of_files_is_a_data_set_with_splits(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "a"}\n')
    assert read("train", "text", dataset=str(tmp_path))["text"][:] == ["a"]
    with pytest.raises(
        ValueError, match=r"split test\) cannot be loaded \(.*\): check the names, or the net"
    ):
        read_rows("test", ["text"], "data.test", dataset=str(tmp_path))
    with pytest.raises(ValueError, match=r"split train has no column 'label'"):
        read("train", "label", dataset=str(tmp_path))


def test_a_stream_of_no_rows_is_empty_and_one_without_the_column_is_refused(file):
    source = file("rows.csv", "text\n")
    assert list(stream_rows(source, ["text"])) == []
    with pytest.raises(ValueError, match=r"has no column 'query': give one of its columns"):
        stream_rows(source, ["query"])


def test_numbers_are_texts_where_texts_are_wanted():
    rows = Dataset.from_dict({"number": [123, 4], "half": [1.5, -2.0], "truth": [True, False]})
    assert texts_of(rows, "number") == ["123", "4"]
    assert texts_of(rows, "half") == ["1.5", "-2"]
    with pytest.raises(
        ValueError, match=r"row 1 has no text in column 'truth' \(True\): take it out, or fill"
    ):
        texts_of(rows, "truth")


@pytest.mark.parametrize("nothing", ["", "  \n", None])
def test_a_row_without_text_is_told(nothing):
    with pytest.raises(ValueError, match=r"row 2 has no text in column 'text' \(.*\): take it out, or fill"):
        texts_of(Dataset.from_dict({"text": ["one", nothing]}), "text")


@pytest.mark.parametrize("values", [["a", ""], ["a", None], [1, None], [["a"], None]])
def test_a_row_without_a_value_is_told(values):
    with pytest.raises(ValueError, match="row 2 has nothing in column 'label': take it out, or fill it in"):
        values_of(Dataset.from_dict({"label": values}), "label")


def test_values_that_look_like_nothing_are_something():
    for values in ([0, 1], [False, True], [[], ["a"]], [0.0, -0.0], ["NA", " "]):
        assert values_of(Dataset.from_dict({"label": values}), "label") == values


def test_a_table_may_have_what_spreadsheets_write_around_it(file):
    table = "sep=;\r\ntext;label;more\r\none;1;x\r\n;2;\r\n;;\r\n;;\r\n"
    assert columns(file("rows.csv", table), "text", "label") == [["one", ""], ["1", "2"]]
    assert columns(file("one.csv", 'text\n""\nsep=\n'), "text") == [["", "sep="]]


def test_empty_fields_between_rows_are_a_row_so_that_none_moves_up(file):
    """A line of predictions or vectors belongs to the row of its number."""
    for name, table, rows in (
        ("several.csv", "text,label\none,1\n,\n\ntwo,2\n,,\n,\n\n", ["one", "", "two"]),
        ("several.tsv", "text\tlabel\n\none\t1\n\t\n\t\ntwo\t2\n\n", ["one", "", "", "two"]),
        ("one.csv", "\ntext\none\n\ntwo\n\n", ["one", "", "two"]),
    ):
        source = file(name, table)
        assert columns(source, "text") == [rows]
        assert [row["text"] for row in stream_rows(source, ["text"])] == rows
        with pytest.raises(ValueError, match=r"line \d: row 2 has nothing in column 'text'"):
            read_rows(source, ["text"], "data.train")
        assert len(read_rows(source, ["text"], "data.train", on_bad_row="skip").rows) == 2
    with pytest.raises(ValueError, match=r"wide\.csv, line 3: not valid CSV \(3 fields under 2 names\)"):
        columns(file("wide.csv", "text,label\none,1\n,,\ntwo,2\n"), "text")


def test_the_names_of_the_columns_are_no_row_of_a_table(file):
    """As where files were joined; a single column may hold its own name."""
    joined = file("joined.csv", "text,label\none,1\ntext,label\ntwo,2\n")
    with pytest.raises(ValueError, match=r"line 3: not valid CSV \(the names of the columns again"):
        columns(joined, "text", "label")
    assert read_rows(joined, ["text"], "data.train", on_bad_row="skip").rows["text"] == ["one", "two"]
    assert columns(file("words.csv", "text\nword\ntext\n"), "text") == [["word", "text"]]


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
