"""Predictions of a file: whole or not there, continued only with what they were begun with."""

import errno
import io
import json
import os

import pytest
import torch

from tercet.finetune import prediction
from tercet.finetune.prediction import predict_file
from tercet.finetune.run import finetune
from tercet.text.bad_records import RowError
from tercet.text.rows import lines_of_json
from tercet.training.disk import DiskFullError, WriteError
from tercet.training.lock import locked

from .conftest import ROWS, write_rows

COUNT = 9
AT_ONCE = 4


@pytest.fixture(scope="module")
def folder(bases, tmp_path_factory):
    """Fine-tune a tiny model."""
    from tercet.configs.recipe import parse_recipe
    from tercet.finetune.recipe import FineTuningRecipe

    place = tmp_path_factory.mktemp("predicting")
    rows = write_rows(place / "train.jsonl", ROWS["classification"](12, 0))
    data = {
        "model": {"path": str(bases / "encoder")},
        "task": {"kind": "classification"},
        "data": {"train": str(rows), "validation": str(rows)},
        "training": {"epochs": 1, "precision": "fp32"},
        "output": str(place / "run"),
    }
    return finetune(parse_recipe(FineTuningRecipe, data))


@pytest.fixture
def rows(tmp_path):
    return write_rows(tmp_path / "new.jsonl", texts(2))


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch):
    monkeypatch.setattr(prediction, "ROWS_AT_ONCE", AT_ONCE)


def texts(seed):
    return [{"text": row["text"]} for row in ROWS["classification"](COUNT, seed)]


def interrupt(monkeypatch, folder, rows, output, after=2, error=KeyboardInterrupt):
    """Predict until the lines of so many chunks are written."""
    write, calls = prediction.write, []

    def written(*arguments):
        if len(calls) == after:
            raise error
        calls.append(1)
        return write(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(prediction, "write", written)
        with pytest.raises(error if isinstance(error, type) else (KeyboardInterrupt, OSError)):
            predict_file(str(folder), str(rows), str(output))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_interrupted_prediction_goes_on(folder, rows, tmp_path, monkeypatch):
    output = tmp_path / "out.jsonl"
    predict_file(str(folder), str(rows), str(tmp_path / "whole.jsonl"))
    interrupt(monkeypatch, folder, rows, output)
    assert names(tmp_path) == [".out.jsonl.origin", ".out.jsonl.partial", "new.jsonl", "whole.jsonl"]
    with (tmp_path / ".out.jsonl.partial").open("a") as file:
        file.write('{"half of')  # a chunk that was not noted
    with pytest.raises(ValueError, match="is unfinished: add --resume or --overwrite"):
        predict_file(str(folder), str(rows), str(output))
    moved = rows.rename(tmp_path / "moved.jsonl")  # it is the contents that count
    assert predict_file(str(folder), str(moved), str(output), resume=True) == COUNT
    assert output.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert names(tmp_path) == ["moved.jsonl", "out.jsonl", "whole.jsonl"]
    with pytest.raises(ValueError, match=r"exists: choose another --output, or add --overwrite"):
        predict_file(str(folder), str(moved), str(output))
    with pytest.raises(ValueError, match=r"exists, so there is nothing to resume: choose"):
        predict_file(str(folder), str(moved), str(output), resume=True)


def test_a_row_that_cannot_be_read_is_named_with_its_file(folder, tmp_path):
    file = tmp_path / "new.jsonl"
    file.write_text('{"text": "fine"}\n{"tex": "not fine"}\n')
    with pytest.raises(ValueError, match=r"new\.jsonl: row 2 has no text in column 'text'"):
        predict_file(str(folder), str(file), str(tmp_path / "out.jsonl"))


def test_a_line_that_is_no_json_is_answered_with_an_example():
    with pytest.raises(RowError, match=r"""row 1 is 'plain text': .* such as \{"text": "\.\.\."\}"""):
        list(lines_of_json(("text",), io.StringIO("plain text\n")))


@pytest.mark.parametrize("kept", [0, 3, COUNT])
def test_other_rows_under_the_same_name_are_noticed(kept, folder, rows, tmp_path, monkeypatch):
    output = tmp_path / "out.jsonl"
    interrupt(monkeypatch, folder, rows, output)
    before = (tmp_path / ".out.jsonl.partial").read_bytes()
    others = texts(2)[:kept] + texts(3)[kept:]
    write_rows(rows, others if kept < COUNT else others[:5])  # or fewer than were predicted
    with pytest.raises(ValueError, match=r"the first 8 rows of .* are not those that were predicted before"):
        predict_file(str(folder), str(rows), str(output), resume=True)
    assert (tmp_path / ".out.jsonl.partial").read_bytes() == before
    assert (
        predict_file(str(folder), str(rows), str(output), overwrite=True)
        == len(rows.read_text().split("\n")) - 1
    )


def test_rows_behind_those_that_were_predicted_may_change(folder, rows, tmp_path, monkeypatch):
    interrupt(monkeypatch, folder, rows, tmp_path / "out.jsonl")
    write_rows(rows, texts(2)[:8] + texts(3)[:3])
    assert predict_file(str(folder), str(rows), str(tmp_path / "out.jsonl"), resume=True) == 11


def test_another_model_or_precision_is_noticed(folder, rows, tmp_path, monkeypatch):
    output = tmp_path / "out.jsonl"
    interrupt(monkeypatch, folder, rows, output)
    with pytest.raises(ValueError, match="was started with another model or precision"):
        predict_file(str(folder), str(rows), str(output), resume=True, precision="bf16")
    monkeypatch.setattr(prediction, "hash_of", lambda file: "another")
    with pytest.raises(ValueError, match="was started with another model or precision"):
        predict_file(str(folder), str(rows), str(output), resume=True)


def test_resuming_what_was_not_begun_begins(folder, rows, tmp_path):
    assert predict_file(str(folder), str(rows), str(tmp_path / "out.jsonl"), resume=True) == COUNT


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
        with pytest.raises(ValueError, match="where this run writes"):
            predict_file(str(folder), str(source), str(output), overwrite=overwrite)
    assert rows.read_bytes() == before


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "predictions.jsonl"])
def test_model_is_not_replaced_by_predictions(name, folder, rows):
    before = names(folder)
    with pytest.raises(ValueError, match="lies in the model"):
        predict_file(str(folder), str(rows), str(folder / name), overwrite=True)
    assert names(folder) == before


def test_file_that_holds_no_predictions_stays(folder, rows, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="is no file of predictions"):
        predict_file(str(folder), str(rows), str(tmp_path / "thesis.tex"), overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_earlier_predictions_stay_until_the_new_ones_are_whole(folder, rows, tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    output = tmp_path / "out.jsonl"
    output.write_text('{"label": "old"}\n')
    with monkeypatch.context() as patch:
        patch.setattr(prediction, "write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            predict_file(str(folder), str(rows), str(output), overwrite=True)
    assert output.read_text() == '{"label": "old"}\n'
    predict_file(str(folder), str(rows), str(output), overwrite=True)
    assert len(output.read_text().splitlines()) == COUNT


def test_predictions_of_another_process_are_left_alone(folder, rows, tmp_path):
    output = tmp_path / "out.jsonl"
    own = locked(tmp_path / ".out.jsonl.lock", "x", "y")
    with own, pytest.raises(ValueError, match=r"--output .*out\.jsonl is in use by process"):
        predict_file(str(folder), str(rows), str(output), overwrite=True)


def test_output_in_no_folder_is_told_of(folder, rows, tmp_path):
    with pytest.raises(ValueError, match="is in a folder that does not exist: create it first"):
        predict_file(str(folder), str(rows), str(tmp_path / "none" / "out.jsonl"))


@pytest.mark.parametrize(
    ("number", "kind", "said"),
    [(errno.ENOSPC, DiskFullError, "no room on the disk"), (errno.EFBIG, WriteError, "ulimit -f")],
)
def test_disk_that_takes_no_more_is_told_of_and_what_was_written_is_kept(
    number, kind, said, folder, rows, tmp_path, monkeypatch
):
    write, calls = prediction.write, []

    def full(*arguments):
        if len(calls) == 1:
            raise OSError(number, os.strerror(number))
        calls.append(1)
        return write(*arguments)

    output = tmp_path / "out.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(prediction, "write", full)
        with pytest.raises(kind, match=f"{said}.*the rows that were predicted are kept"):
            predict_file(str(folder), str(rows), str(output))
    assert json.loads((tmp_path / ".out.jsonl.origin").read_text())["num_rows"] == AT_ONCE
    assert predict_file(str(folder), str(rows), str(output), resume=True) == COUNT


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
