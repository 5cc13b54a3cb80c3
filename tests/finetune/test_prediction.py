"""Predictions of a file: whole or not there, behind the rows that they are of."""

import errno
import json
import os
from functools import partial

import pandas as pd
import pytest
import torch
from datasets import Dataset

from tercet.data.files.atomic_writes import WriteError
from tercet.data.files.locks import locked
from tercet.data.files.row_writers import WRITERS, LineWriter
from tercet.finetune import prediction
from tercet.finetune.prediction import Predictor, predict_file, predict_rows
from tercet.finetune.run import finetune
from tercet.modeling.saved.checkpoint import Checkpoint

from .conftest import ROWS, recipe_in, write_rows

COUNT = 9
AT_ONCE = 4


@pytest.fixture(scope="module")
def folder(bases, tmp_path_factory):
    place = tmp_path_factory.mktemp("predicting")
    return finetune(recipe_in(place, bases, "classification", count=12, training={"epochs": 1}))


@pytest.fixture
def rows(tmp_path):
    return write_rows(tmp_path / "new.jsonl", texts(2))


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch):
    monkeypatch.setattr(prediction, "ROWS_AT_ONCE", AT_ONCE)


def texts(seed):
    return [{"text": row["text"]} for row in ROWS["classification"](COUNT, seed)]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def stop_after_a_chunk(monkeypatch, error):
    """Let the second chunk of rows raise an error where it is written."""
    write, calls = LineWriter.write, []

    def written(*arguments):
        if calls:
            raise error
        calls.append(1)
        write(*arguments)

    monkeypatch.setattr(LineWriter, "write", written)


def test_a_row_that_cannot_be_read_is_named_with_its_file(folder, tmp_path):
    file = tmp_path / "new.jsonl"
    file.write_text('{"text": "fine"}\n{"tex": "not fine"}\n')
    with pytest.raises(ValueError, match=r"new\.jsonl: row 2 has no text in column 'text'"):
        predict_file(str(folder), str(file), str(tmp_path / "out.jsonl"))


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["new.jsonl", "link.jsonl", "there/../new.jsonl", "folder/new.jsonl"])
def test_rows_are_not_replaced_by_their_predictions(name, overwrite, folder, rows, tmp_path):
    before = rows.read_bytes()
    (tmp_path / "link.jsonl").symlink_to(rows)
    (tmp_path / "there").mkdir()
    (tmp_path / "folder").symlink_to(tmp_path)
    for source, output in ((rows, tmp_path / name), (tmp_path / name, rows)):
        if output.is_symlink():
            continue  # the link would be replaced, and what it leads to stays
        with pytest.raises(ValueError, match="is the FILE that is read"):
            predict_file(str(folder), str(source), str(output), overwrite=overwrite)
    assert rows.read_bytes() == before


@pytest.mark.parametrize("name", ["config.json", "predictions.jsonl"])
def test_model_is_not_replaced_by_predictions(name, folder, rows):
    before = names(folder)
    with pytest.raises(ValueError, match="lies in the model"):
        predict_file(str(folder), str(rows), str(folder / name), overwrite=True)
    assert names(folder) == before


def test_earlier_predictions_stay_until_the_new_ones_are_whole(folder, rows, tmp_path, monkeypatch):
    output = tmp_path / "out.jsonl"
    output.write_text('{"label": "old"}\n')
    with pytest.raises(ValueError, match=r"out\.jsonl exists: choose another --output, or add --overwrite"):
        predict_file(str(folder), str(rows), str(output))
    with monkeypatch.context() as patch:
        stop_after_a_chunk(patch, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            predict_file(str(folder), str(rows), str(output), overwrite=True)
    assert output.read_text() == '{"label": "old"}\n'
    assert names(tmp_path) == ["new.jsonl", "out.jsonl"]
    assert predict_file(str(folder), str(rows), str(output), overwrite=True) == COUNT
    assert len(output.read_text().splitlines()) == COUNT


def table_of(file):
    """Read a table of predictions as its users do."""
    of_lines, of_cells = partial(pd.read_json, lines=True), partial(pd.read_csv, sep="\t")
    readers = {".jsonl": of_lines, ".json": pd.read_json, ".parquet": pd.read_parquet, ".tsv": of_cells}
    return readers.get(file.suffix, pd.read_csv)(file)


@pytest.mark.parametrize("source", [".csv", ".parquet", ".jsonl"])
@pytest.mark.parametrize("ending", WRITERS)
def test_rows_come_back_with_their_predictions_as_the_ending_says(source, ending, folder, tmp_path, capsys):
    broken = "a b" if source == ".csv" else "a\rb"  # which pandas writes without quotes
    labels = [(f'a "b",\t{row}', broken)[row % 2] for row in range(9)]
    frame = pd.DataFrame([{"id": row, "label": labels[row]} | each for row, each in enumerate(texts(2))])
    file, output = tmp_path / f"rows{source}", tmp_path / f"out{ending}"
    write = {".csv": partial(frame.to_csv, index=False), ".parquet": frame.to_parquet}
    write.get(source, partial(frame.to_json, orient="records", lines=True))(file)
    predict_file(str(folder), str(file), str(output))
    said = capsys.readouterr().err
    assert f"9 rows answered: {output} has the columns of {file}, then label, score, scores" in said
    assert "(its own label with given_ before the name)" in said
    found = table_of(output)
    assert [*found.columns] == ["id", "given_label", "text", "label", "score", "scores"]
    own = found.rename(columns={"given_label": "label"}).iloc[:, :3].astype({"id": int})
    assert own.to_dict("records") == frame.to_dict("records")
    wanted = predict_rows(Predictor(Checkpoint.open(str(folder))), Dataset.from_list(texts(2)), "rows")
    assert found["label"].tolist() == [each["label"] for each in wanted]
    for scores, each in zip(found["scores"], wanted, strict=True):
        assert (json.loads(scores) if isinstance(scores, str) else scores) == pytest.approx(each["scores"])


@pytest.mark.parametrize("ending", WRITERS)
def test_a_text_that_a_spreadsheet_would_compute_comes_back_as_it_is(ending, folder, tmp_path):
    (tmp_path / "rows.csv").write_text("text\n=1+1\n@SUM(a)\n")
    predict_file(str(folder), str(tmp_path / "rows.csv"), str(tmp_path / f"out{ending}"))
    assert table_of(tmp_path / f"out{ending}")["text"].tolist() == ["=1+1", "@SUM(a)"]


def test_a_table_without_rows_is_answered_with_none(folder, tmp_path):
    (tmp_path / "rows.csv").write_text("text\n")
    assert predict_file(str(folder), str(tmp_path / "rows.csv"), str(tmp_path / "out.parquet")) == 0
    assert pd.read_parquet(tmp_path / "out.parquet").empty


@pytest.mark.parametrize("ending", [".jsonl", ".json", ".csv"])
def test_what_is_no_number_is_written_as_nothing(ending, folder, tmp_path):
    table = pd.DataFrame(
        {"text": ["a b", "b a"], "price": [0.5, float("nan")], "all": [[1.5], [float("inf")]]}
    )
    table.to_parquet(tmp_path / "rows.parquet")
    predict_file(str(folder), str(tmp_path / "rows.parquet"), str(tmp_path / f"out{ending}"))
    written = (tmp_path / f"out{ending}").read_text()
    assert "nan" not in written.lower()
    assert "infinity" not in written.lower()
    found = table_of(tmp_path / f"out{ending}")
    assert found["price"].isna().tolist() == [False, True]


def test_a_table_that_cannot_hold_its_rows_is_refused_before_they_are_predicted(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(prediction, "Predictor", pytest.fail)
    (tmp_path / "rows.jsonl").write_text('{"text": "a", "id": 9007199254740993}\n{"text": "b", "id": 0.5}\n')
    with pytest.raises(ValueError, match=r"a column has values of several kinds .* write .jsonl"):
        predict_file(str(folder), str(tmp_path / "rows.jsonl"), str(tmp_path / "out.parquet"))
    assert not (tmp_path / "out.parquet").exists()


def test_an_output_of_another_ending_is_refused(folder, rows, tmp_path):
    with pytest.raises(ValueError, match=r"out\.txt': end its name in \.jsonl, \.json, \.csv, "):
        predict_file(str(folder), str(rows), str(tmp_path / "out.txt"))


def test_predictions_of_another_process_are_left_alone(folder, rows, tmp_path):
    output = tmp_path / "out.jsonl"
    own = locked(tmp_path / ".out.jsonl.lock", "x", "y")
    with own, pytest.raises(ValueError, match=r"--output .*out\.jsonl is in use by process"):
        predict_file(str(folder), str(rows), str(output), overwrite=True)


def test_output_in_no_folder_is_told_of(folder, rows, tmp_path):
    with pytest.raises(ValueError, match="is in a folder that does not exist: create it first"):
        predict_file(str(folder), str(rows), str(tmp_path / "none" / "out.jsonl"))


@pytest.mark.parametrize(
    ("number", "said"), [(errno.ENOSPC, "No space left on device"), (errno.EFBIG, "File too large")]
)
def test_disk_that_takes_no_more_is_told_of_and_nothing_is_left(
    number, said, folder, rows, tmp_path, monkeypatch
):
    stop_after_a_chunk(monkeypatch, OSError(number, os.strerror(number)))
    with pytest.raises(WriteError, match=f"{said}.*repeat the command"):
        predict_file(str(folder), str(rows), str(tmp_path / "out.jsonl"))
    assert names(tmp_path) == ["new.jsonl"]


def test_a_model_that_computes_no_numbers_predicts_nothing(folder, rows, tmp_path, monkeypatch):
    build = prediction.Predictor.__init__

    def damaged(self, *arguments):
        build(self, *arguments)
        with torch.no_grad():
            next(self.model.parameters()).fill_(torch.nan)

    monkeypatch.setattr(prediction.Predictor, "__init__", damaged)
    with pytest.raises(ValueError, match="computes what is no number"):
        predict_file(str(folder), str(rows), str(tmp_path / "predictions.jsonl"))
    assert not (tmp_path / "predictions.jsonl").exists()
