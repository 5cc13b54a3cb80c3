"""What a run reads does not lie in what it replaces, however it is written."""

import os

import pytest

from tercet.training import inputs
from tercet.training.inputs import require_apart

NAMES = ("model", "log.jsonl")


@pytest.fixture
def run(tmp_path):
    """Leave a run, and links to it."""
    folder = tmp_path / "runs" / "o1"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "config.json").write_text("{}")
    (folder / "log.jsonl").write_text("{}")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("text")
    (tmp_path / "data" / "log.txt").symlink_to(folder / "log.jsonl")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "link").symlink_to(folder / "model")
    (tmp_path / "chain").symlink_to("deep/er/link")
    (tmp_path / "runs2").symlink_to("runs")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").symlink_to(folder / "model" / "config.json")
    return folder


@pytest.mark.parametrize(
    "name",
    [
        *("runs/o1/model", "runs/o1/model/config.json", "runs/o1/log.jsonl", "runs/../runs/o1/./model/"),
        *("chain", "chain/config.json", "runs2/o1/model", "deep/er/link", "mine"),
    ],
)
@pytest.mark.parametrize("is_absolute", [False, True])
def test_model_in_what_is_replaced_is_found(name, is_absolute, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = str(tmp_path / name) if is_absolute else name
    folder = run if not is_absolute else run.relative_to(tmp_path)
    with pytest.raises(ValueError, match=r"model\.path is .*, where this run writes"):
        require_apart(folder, NAMES, {"model.path": given}, {})


@pytest.mark.parametrize("name", ["runs/o1", "runs", "data", "data/log.txt", ".", "deep"])
def test_text_in_what_is_replaced_is_found(name, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"corpus\.train is .*, where this run writes"):
        require_apart(run, NAMES, {}, {"corpus.train": ["data/a.txt", name]})


def test_link_that_would_be_removed_is_found_though_its_target_stays(run, tmp_path):
    (tmp_path / "real").mkdir()
    link = run / "log.jsonl"
    link.unlink()
    link.symlink_to(tmp_path / "real")
    with pytest.raises(ValueError, match="where this run writes"):
        require_apart(run, NAMES, {"model.path": str(link)}, {})
    require_apart(run, NAMES, {"model.path": str(tmp_path / "real")}, {})


@pytest.mark.parametrize(
    "name", [None, "data/a.txt", "documentation", "me/model", "runs/o2/model", "\0", 9000 * "x"]
)
def test_what_lies_elsewhere_is_not(name, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    require_apart(run, NAMES, {"model.path": name}, {"corpus.train": name})


def test_model_above_the_run_is_not(run, tmp_path, monkeypatch):
    """A model's folder is read by itself, without those in it."""
    monkeypatch.chdir(tmp_path)
    require_apart(run, NAMES, {"model.path": "runs"}, {})


def test_name_in_another_case_is_found_where_the_file_system_does_not_care(run, tmp_path, monkeypatch):
    lstat = os.lstat

    def careless(path, *arguments, **options):
        return lstat(str(path).replace("RUNS", "runs"), *arguments, **options)

    monkeypatch.setattr(inputs.os, "lstat", careless)
    monkeypatch.setattr(os, "lstat", careless)
    with pytest.raises(ValueError, match="where this run writes"):
        require_apart(run, NAMES, {"model.path": str(tmp_path / "RUNS" / "o1" / "model")}, {})


def test_folder_that_holds_itself_is_read_to_an_end(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "again").symlink_to(tmp_path / "data")
    require_apart(tmp_path / "run", NAMES, {}, {"corpus.train": str(tmp_path / "data")})
